package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// The ports are below Linux's ephemeral range, which starts at 32768. So no outgoing connection
// takes the port of a server that is down.
const (
	firstPort  = 20000
	blockSize  = 32
	blockCount = 384
)

// portBlock reserves the ports from base to base+blockSize-1 for one cluster.
type portBlock struct {
	base int
	lock *os.File
}

// reservePorts returns ports that no program uses on any of hosts.
func reservePorts(hosts ...string) (*portBlock, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("leaderboard-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, i := range rand.Perm(blockCount) {
		base := firstPort + i*blockSize
		lock, err := lockFile(filepath.Join(dir, strconv.Itoa(base)))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b := &portBlock{base: base, lock: lock}
		if b.isFree(hosts) {
			return b, nil
		}
		b.release()
	}
	return nil, fmt.Errorf("cluster: no %d consecutive ports between %d and %d are free", blockSize, firstPort, firstPort+blockSize*blockCount)
}

func (b *portBlock) isFree(hosts []string) bool {
	for _, host := range hosts {
		for i := range blockSize {
			if checkListen(b.addr(host, i)) != nil {
				return false
			}
		}
	}
	return true
}

func (b *portBlock) addr(host string, i int) string {
	return net.JoinHostPort(host, strconv.Itoa(b.base+i))
}

func (b *portBlock) release() { unlock(b.lock) }

func checkListen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
