module magicstick.dev/operator/tools/peers/build/source-controller

go 1.26.0

require github.com/fluxcd/source-controller v1.9.0

// The replaces of the controller's own go.mod, which do not reach a module that requires it.
replace github.com/opencontainers/go-digest => github.com/opencontainers/go-digest v1.0.1-0.20220411205349-bde1400a84be

