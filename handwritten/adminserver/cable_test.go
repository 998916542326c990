package adminserver_test

import (
	"context"
	"errors"
	"net"
	"sync"
)

// cable is a network between the process and the API server that can be cut.
type cable struct {
	mutex  sync.Mutex
	broken bool
	open   []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.broken {
		return nil, errors.New("the cable is cut")
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.open = append(c.open, connection)
	}
	return connection, err
}

func (c *cable) cut() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.broken = true
	for _, connection := range c.open {
		_ = connection.Close()
	}
	c.open = nil
}

func (c *cable) mend() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.broken = false
}
