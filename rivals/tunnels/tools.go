//go:build tools

package main

// Keeps the version of WireGuard's own program in go.mod: go build golang.zx2c4.com/wireguard.
import _ "golang.zx2c4.com/wireguard/device"
