// Ports that lead through KCP (kcp-go) with streams in it (smux): what kcptun is made of, with
// kcptun's default settings. kcptun leads to one place; here a stream begins with the port.
//
//	tunnels serve ADDRESS KEY            on the server: streams lead to ports of 127.0.0.1
//	tunnels lead ADDRESS KEY PORT...     on the client: ports of 127.0.0.1, led to the same there
package main

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/xtaci/kcp-go/v5"
	"github.com/xtaci/smux"
	"golang.org/x/crypto/pbkdf2"
)

// Of kcptun: --datashard, --parityshard, --mtu, --sockbuf, --smuxbuf, --streambuf.
const (
	dataShards   = 10
	parityShards = 3
	mtu          = 1350
	socketBytes  = 4 << 20
	sessionBytes = 4 << 20
	streamBytes  = 2 << 20
)

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3])
	case len(os.Args) > 4 && os.Args[1] == "lead":
		err = lead(os.Args[2], os.Args[3], os.Args[4:])
	default:
		err = fmt.Errorf("write: serve ADDRESS KEY, or lead ADDRESS KEY PORT...")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tunnels:", err)
		os.Exit(1)
	}
}

// cipher is that of kcptun's --crypt aes.
func cipher(key string) (kcp.BlockCrypt, error) {
	return kcp.NewAESBlockCrypt(pbkdf2.Key([]byte(key), []byte("kcp-go"), 4096, 32, sha1.New))
}

// set gives a session the settings of kcptun's --mode fast.
func set(session *kcp.UDPSession, sendPackets, receivePackets int) {
	session.SetStreamMode(true)
	session.SetWriteDelay(false)
	session.SetNoDelay(0, 30, 2, 1)
	session.SetWindowSize(sendPackets, receivePackets)
	session.SetMtu(mtu)
	session.SetACKNoDelay(false)
}

func streams() *smux.Config {
	config := smux.DefaultConfig()
	config.Version = 2
	config.MaxReceiveBuffer = sessionBytes
	config.MaxStreamBuffer = streamBytes
	return config
}

func serve(address, key string) error {
	block, err := cipher(key)
	if err != nil {
		return err
	}
	listener, err := kcp.ListenWithOptions(address, block, dataShards, parityShards)
	if err != nil {
		return err
	}
	_ = listener.SetReadBuffer(socketBytes)
	_ = listener.SetWriteBuffer(socketBytes)
	fmt.Println("ready")
	for {
		session, err := listener.AcceptKCP()
		if err != nil {
			return err
		}
		set(session, 1024, 1024)
		go func() {
			defer session.Close()
			mux, err := smux.Server(session, streams())
			if err != nil {
				return
			}
			defer mux.Close()
			for {
				stream, err := mux.AcceptStream()
				if err != nil {
					return
				}
				go exit(stream)
			}
		}()
	}
}

func exit(stream *smux.Stream) {
	defer stream.Close()
	var port [2]byte
	if _, err := io.ReadFull(stream, port[:]); err != nil {
		return
	}
	service, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", binary.BigEndian.Uint16(port[:])))
	if err != nil {
		return
	}
	join(stream, service)
}

func lead(address, key string, ports []string) error {
	block, err := cipher(key)
	if err != nil {
		return err
	}
	session, err := kcp.DialWithOptions(address, block, dataShards, parityShards)
	if err != nil {
		return err
	}
	set(session, 128, 512)
	_ = session.SetReadBuffer(socketBytes)
	_ = session.SetWriteBuffer(socketBytes)
	mux, err := smux.Client(session, streams())
	if err != nil {
		return err
	}
	for _, text := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:"+text)
		if err != nil {
			return err
		}
		port := uint16(listener.Addr().(*net.TCPAddr).Port)
		go func() {
			for {
				program, err := listener.Accept()
				if err != nil {
					return
				}
				go enter(mux, program, port)
			}
		}()
	}
	fmt.Println("ready")
	<-mux.CloseChan()
	return fmt.Errorf("the session has ended")
}

func enter(mux *smux.Session, program net.Conn, port uint16) {
	stream, err := mux.OpenStream()
	if err != nil {
		program.Close()
		return
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint16(nil, port)); err != nil {
		stream.Close()
		program.Close()
		return
	}
	join(stream, program)
}

// join carries both ways until either ends, as kcptun does.
func join(a io.ReadWriteCloser, b io.ReadWriteCloser) {
	ended := make(chan struct{}, 2)
	carry := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go carry(a, b)
	go carry(b, a)
	<-ended
	a.Close()
	b.Close()
}
