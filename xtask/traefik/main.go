// Command traefik-file is Traefik with one provider of configuration, a file: its own entry point, router,
// middlewares and proxy, wired as its own command wires them. `cargo xtask setup` builds it inside Traefik's source,
// without the providers for clusters and clouds, whose libraries take an hour to build and which no test asks.
//
//	traefik-file ADDRESS DYNAMIC.yaml
//
// It says on standard output when the routers of the file are in force.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/traefik/traefik/v3/cmd"
	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/config/runtime"
	"github.com/traefik/traefik/v3/pkg/config/static"
	"github.com/traefik/traefik/v3/pkg/observability/metrics"
	"github.com/traefik/traefik/v3/pkg/provider/aggregator"
	"github.com/traefik/traefik/v3/pkg/provider/file"
	"github.com/traefik/traefik/v3/pkg/provider/traefik"
	"github.com/traefik/traefik/v3/pkg/proxy/httputil"
	"github.com/traefik/traefik/v3/pkg/safe"
	"github.com/traefik/traefik/v3/pkg/server"
	"github.com/traefik/traefik/v3/pkg/server/middleware"
	"github.com/traefik/traefik/v3/pkg/server/service"
	"github.com/traefik/traefik/v3/pkg/tcp"
	"github.com/traefik/traefik/v3/pkg/tls"
)

const entryPoint = "web"

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: traefik-file ADDRESS DYNAMIC.yaml")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	running, err := build(ctx, os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	running.Start(ctx)
	defer running.Close()
	running.Wait()
}

// build is Traefik's setupServer without what only certificates, plugins and observability need.
func build(ctx context.Context, address, dynamicFile string) (*server.Server, error) {
	settings := settings(address, dynamicFile)
	if err := settings.ValidateConfiguration(); err != nil {
		return nil, err
	}
	providers := aggregator.NewProviderAggregator(*settings.Providers)
	if err := providers.AddProvider(traefik.New(*settings)); err != nil {
		return nil, err
	}
	routines := safe.NewPool(ctx)
	certificates := tls.NewManager(settings.OCSP)
	registry := metrics.NewVoidRegistry()
	observability := middleware.NewObservabilityMgr(*settings, registry, nil, nil, nil, nil)
	entryPoints, err := server.NewTCPEntryPoints(settings.EntryPoints, settings.HostResolver, registry)
	if err != nil {
		return nil, err
	}
	transports := service.NewTransportManager(nil)
	proxies := httputil.NewProxyBuilder(transports, nil)
	dialers := tcp.NewDialerManager(nil)
	services := service.NewManagerFactory(*settings, routines, observability, transports, proxies, nil, certificates)
	routers, err := server.NewRouterFactory(*settings, services, certificates, observability, nil, dialers)
	if err != nil {
		return nil, err
	}
	watcher := server.NewConfigurationWatcher(routines, providers, []string{entryPoint}, "internal", false)
	watcher.AddListener(func(conf dynamic.Configuration) {
		transports.Update(conf.HTTP.ServersTransports)
		proxies.Update(conf.HTTP.ServersTransports)
		dialers.Update(conf.TCP.ServersTransports)
	})
	watcher.AddListener(func(conf dynamic.Configuration) {
		made, _ := routers.CreateRouters(runtime.NewConfig(conf))
		entryPoints.Switch(made)
		for name := range conf.HTTP.Routers {
			if strings.HasSuffix(name, "@file") {
				fmt.Println("the file is in force")
				break
			}
		}
	})
	return server.NewServer(routines, entryPoints, nil, watcher, observability), nil
}

// settings are Traefik's own defaults, with one entry point and one file.
func settings(address, dynamicFile string) *static.Configuration {
	settings := &cmd.NewTraefikConfiguration().Configuration
	entry := &static.EntryPoint{Address: address}
	entry.SetDefaults()
	settings.EntryPoints[entryPoint] = entry
	settings.Providers.File = &file.Provider{Filename: dynamicFile}
	settings.SetEffectiveConfiguration()
	return settings
}
