// The etcd that integration tests start, from Kubernetes' vendored source. It does not wait for the disk.

package main

import (
	"flag"
	"log"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	c := embed.NewConfig()
	c.UnsafeNoFsync = true
	clients := flag.String("listen-client-urls", "", "")
	peers := flag.String("listen-peer-urls", "", "")
	flag.StringVar(&c.Dir, "data-dir", "", "")
	flag.StringVar(&c.LogLevel, "log-level", "", "")
	flag.Int64Var(&c.QuotaBackendBytes, "quota-backend-bytes", 0, "")
	flag.String("advertise-client-urls", "", "for nobody: the tests know the address")
	flag.Parse()
	c.ListenClientUrls, c.ListenPeerUrls = parsed(*clients), parsed(*peers)
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	server.Close()
}

func parsed(address string) []url.URL {
	found, err := url.Parse(address)
	if err != nil {
		log.Fatal(err)
	}
	return []url.URL{*found}
}
