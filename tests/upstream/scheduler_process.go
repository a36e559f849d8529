// This file is added to kube-scheduler's package scheduler by tests/upstream. With SCHEDULER_COMMAND, the scheduler of an
// integration test runs as a process of its own, with the test's configuration and feature gates. The Go scheduler keeps its
// informers and its queue, which tests read, and schedules nothing.
//
//	SCHEDULER_COMMAND  the arguments of the command, one a line; RunProcess adds flags for the configuration and the gates
//	SCHEDULER_GATES    the feature gates of the command, separated by commas; it gets the value of each
//	SCHEDULER_READY    the text that it logs when it begins to schedule
//	SCHEDULER_FOLDER   the folder for NNN.log, NNN.yaml and NNN.kubeconfig of each process

package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/featuregate"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/test/utils/kubeconfig"
)

var (
	optionsOf    sync.Map // *Scheduler -> schedulerOptions; New stores them
	processes    sync.Map // a channel that closes when a process ends -> its context
	processCount atomic.Int32
)

// RunProcess replaces `go sched.Run(ctx)`. It returns when the process schedules or needs more than a minute. It panics
// if the process does not start: the test would wait for its pods until its time is over. The process ends with ctx.
func (sched *Scheduler) RunProcess(ctx context.Context) {
	command := strings.Split(os.Getenv("SCHEDULER_COMMAND"), "\n")
	if command[0] == "" {
		go sched.Run(ctx)
		return
	}
	processes.Range(func(ended, of any) bool { // two schedulers for the same pods would disturb each other
		if of.(context.Context).Err() != nil {
			<-ended.(chan struct{})
		}
		return true
	})
	name := fmt.Sprintf("%03d", processCount.Add(1))
	base := filepath.Join(os.Getenv("SCHEDULER_FOLDER"), name)
	options, _ := optionsOf.Load(sched)
	child, err := options.(schedulerOptions).command(ctx, command, base)
	if err == nil {
		child.Cancel = func() error {
			fmt.Printf("scheduler process %s used %s\n", name, usage(child.Process.Pid))
			return child.Process.Signal(syscall.SIGTERM)
		}
		err = child.Start()
	}
	if err != nil {
		panic(fmt.Sprintf("scheduler process %s did not start: %v", name, err))
	}
	fmt.Printf("scheduler process %s started without the plugins %v\n", name, slices.Sorted(maps.Keys(options.(schedulerOptions).frameworkOutOfTreeRegistry)))
	ended := make(chan struct{})
	processes.Store(ended, ctx)
	go func() {
		err := child.Wait()
		if ctx.Err() == nil {
			fmt.Printf("scheduler process %s failed: %v, see %s.log\n", name, err, base)
		}
		close(ended)
		<-ctx.Done()
		processes.Delete(ended)
		sched.SchedulingQueue.Close()
		sched.Profiles.Close()
	}()
	late := time.After(time.Minute)
	for text := []byte{}; !bytes.Contains(text, []byte(os.Getenv("SCHEDULER_READY"))); text, _ = os.ReadFile(base + ".log") {
		select {
		case <-ended:
			if ctx.Err() == nil {
				panic(fmt.Sprintf("scheduler process %s ended before it was ready, see %s.log", name, base))
			}
			return
		case <-late:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// command returns the command with files for the configuration, the credentials and the log.
func (o schedulerOptions) command(ctx context.Context, command []string, base string) (*exec.Cmd, error) {
	c, err := latest.Default()
	if err != nil {
		return nil, err
	}
	c.Profiles = o.profilesOfProcess()
	c.Extenders, c.Parallelism, c.PercentageOfNodesToScore = o.extenders, o.parallelism, &o.percentageOfNodesToScore
	c.PodInitialBackoffSeconds = max(1, o.podInitialBackoffSeconds) // a test may have 0, a configuration may not
	c.PodMaxBackoffSeconds = max(c.PodInitialBackoffSeconds, o.podMaxBackoffSeconds)
	c.LeaderElection.LeaderElect = false
	c.ClientConnection.Kubeconfig, c.ClientConnection.QPS, c.ClientConnection.Burst = base+".kubeconfig", 5000, 5000
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, configv1.SchemeGroupVersion), c)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(base+".yaml", text, 0o600); err != nil {
		return nil, err
	}
	if err := clientcmd.WriteToFile(*kubeconfig.CreateKubeConfig(o.kubeConfig), base+".kubeconfig"); err != nil {
		return nil, err
	}
	var gates []string
	for _, gate := range strings.Split(os.Getenv("SCHEDULER_GATES"), ",") {
		gates = append(gates, fmt.Sprintf("%s=%t", gate, feature.DefaultFeatureGate.Enabled(featuregate.Feature(gate))))
	}
	log, err := os.Create(base + ".log")
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, command[0], append(command[1:],
		"--config", base+".yaml",
		"--feature-gates", strings.Join(gates, ","),
		"--pod-max-in-unschedulable-pods-duration", o.podMaxInUnschedulablePodsDuration.String())...)
	child.Stdout, child.Stderr, child.WaitDelay = log, log, 5*time.Second
	return child, nil
}

// profilesOfProcess returns the profiles without the plugins that a test brings: these are Go.
func (o schedulerOptions) profilesOfProcess() (profiles []config.KubeSchedulerProfile) {
	for i := range o.profiles {
		profile := o.profiles[i].DeepCopy()
		profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(c config.PluginConfig) bool { return o.frameworkOutOfTreeRegistry[c.Name] != nil })
		sets := reflect.ValueOf(profile.Plugins).Elem()
		for point := range sets.NumField() {
			set := sets.Field(point).Addr().Interface().(*config.PluginSet)
			set.Enabled = slices.DeleteFunc(set.Enabled, func(p config.Plugin) bool { return o.frameworkOutOfTreeRegistry[p.Name] != nil })
		}
		profiles = append(profiles, *profile)
	}
	return profiles
}

// usage returns what a process has used so far, in words that the results are read from.
func usage(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the state, the third field, on
	_, peak, found := strings.Cut(string(status), "VmHWM:")
	if len(fields) < 13 || !found {
		return "an unknown amount"
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	kilobytes, _ := strconv.Atoi(strings.Fields(peak)[0])
	return fmt.Sprintf("%.2f s of CPU, %d MB", float64(user+system)/100, kilobytes/1000)
}
