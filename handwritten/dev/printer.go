package dev

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// unbounded is the width where no terminal bounds it: files and pipes get whole messages.
	unbounded = math.MaxInt
	// fallbackWidth and fallbackHeight are of a terminal that does not tell its size.
	fallbackWidth, fallbackHeight = 160, 40
	columnGap                     = "  "
	ellipsis                      = "..."
	// minMessage is the least width of the last column, on narrow terminals too.
	minMessage = 20
)

// printer writes for a person: lines that stay, and one table at the end that
// is replaced on a terminal and printed again elsewhere.
type printer struct {
	mu  sync.Mutex
	out io.Writer
	// size tells width and height of a terminal; nil means no terminal.
	size func() (width, height int)
	// drawn is how many lines of the last table are on the screen.
	drawn int
}

func newPrinter(out io.Writer) *printer {
	p := &printer{out: out}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return p
	}
	p.size = func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return fallbackWidth, fallbackHeight
		}
		return width, height
	}
	return p
}

// line prints below whatever is there.
func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn = 0
	_, _ = fmt.Fprintf(p.out, format+"\n", args...)
}

// table shows the rows in place of the last table. The first row is the header.
func (p *printer) table(rows [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	width, height := unbounded, 0
	if p.size != nil {
		width, height = p.size()
	}
	lines := layOut(rows, width)
	if p.size == nil {
		_, _ = fmt.Fprintf(p.out, "\n%s\n", strings.Join(lines, "\n"))
		return
	}
	// A table that is higher than the screen could not be replaced any more.
	if room := height - 2; room > 1 && len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("... and %d more; enlarge the window or use kubectl", hidden))
	}
	var text strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\x1b[J", p.drawn)
	}
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	p.drawn = len(lines)
	_, _ = io.WriteString(p.out, text.String())
}

// layOut aligns the columns and cuts the last one to what fits the width. Cells
// are made printable first: messages come from objects that anybody may write.
func layOut(rows [][]string, width int) []string {
	var widths []int
	clean := make([][]string, len(rows))
	for i, row := range rows {
		for column, cell := range row {
			cell = printable(cell)
			clean[i] = append(clean[i], cell)
			if column == len(widths) {
				widths = append(widths, 0)
			}
			widths[column] = max(widths[column], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(clean))
	for i, row := range clean {
		var line strings.Builder
		used := 0
		for column, cell := range row {
			if column == len(row)-1 {
				line.WriteString(cut(cell, max(minMessage, width-used)))
				break
			}
			line.WriteString(cell + strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell)) + columnGap)
			used += widths[column] + len(columnGap)
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// cut leaves out the middle: a message starts with what and ends with why.
func cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	start := (width - len(ellipsis)) / 3
	end := len(runes) - (width - len(ellipsis) - start)
	return string(runes[:start]) + ellipsis + string(runes[end:])
}

// printable replaces what would move the cursor or break the line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
}
