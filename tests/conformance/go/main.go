// franz-go: `conformance first|second BOOTSTRAP`; between the two the broker is killed.
// Any wrong result ends the program with an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 6
	settled    = 60 * time.Second
)

var bootstrap string

func main() {
	bootstrap = os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Second)
	defer cancel()
	client := connect()
	defer client.Close()
	admin := kadm.NewClient(client)
	if os.Args[1] == "first" {
		topics(ctx, admin)
		codecs(ctx)
		group(ctx, admin, "eager", kgo.RangeBalancer())
		group(ctx, admin, "cooperative", kgo.CooperativeStickyBalancer())
		transactions(ctx)
		produce(ctx, 0, 50)
		resume(ctx, 0, 50)
	} else {
		produce(ctx, 50, 100)
		resume(ctx, 50, 100)
		reset(ctx, admin)
	}
}

func connect(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}, options...)...)
	must(err)
	return client
}

func topics(ctx context.Context, admin *kadm.Client) {
	retention := "60000"
	_, err := admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.ms": &retention}, "go")
	must(err)
	for _, name := range []string{"resumed", "codecs", "grown"} {
		_, err = admin.CreateTopic(ctx, 1, -1, nil, name)
		must(err)
	}
	_, err = admin.CreateTopic(ctx, 1, -1, nil, "grown")
	check(errors.Is(err, kerr.TopicAlreadyExists), "the topic exists: %v", err)
	_, err = admin.UpdatePartitions(ctx, 3, "grown")
	must(err)
	described, err := admin.ListTopics(ctx, "go", "grown")
	must(err)
	check(len(described["go"].Partitions) == partitions && len(described["grown"].Partitions) == 3, "partitions")
	altered := "120000"
	_, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &altered}}, "go")
	must(err)
	for end := time.Now().Add(5 * time.Second); retention != altered; { // any broker answers; of several, some learn of it later
		check(time.Now().Before(end), "retention.ms is %v", retention)
		configs, err := admin.DescribeTopicConfigs(ctx, "go")
		must(err)
		for _, config := range configs[0].Configs {
			if config.Key == "retention.ms" {
				retention = config.MaybeValue()
			}
		}
	}
	_, err = admin.DeleteTopic(ctx, "grown")
	must(err)
	_, err = admin.DeleteTopic(ctx, "grown")
	check(errors.Is(err, kerr.UnknownTopicOrPartition), "the topic is gone: %v", err)
	say("topics")
}

func codecs(ctx context.Context) {
	var values []string
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		producer := connect(kgo.ProducerBatchCompression(codec))
		for number := 0; number < 100; number++ {
			value := strings.Repeat(fmt.Sprint(name, number, " "), 20)
			values = append(values, value)
			record := &kgo.Record{Topic: "codecs", Value: []byte(value)}
			record.Headers = []kgo.RecordHeader{{Key: "trace", Value: []byte{0, 255}}}
			producer.Produce(ctx, record, func(_ *kgo.Record, err error) { must(err) })
		}
		must(producer.Flush(ctx))
		producer.Close()
	}
	reader := connect(kgo.ConsumeTopics("codecs"))
	defer reader.Close()
	next := 0
	for next < len(values) {
		fetches := reader.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			check(string(record.Value) == values[next] && record.Headers[0].Value[1] == 255, "record %d", next)
			next++
		})
	}
	say("codecs")
}

type member struct {
	client *kgo.Client
	done   chan struct{}
	mutex  sync.Mutex
	values map[string]bool
	owned  map[int32]bool
}

func join(ctx context.Context, name string, balancer kgo.GroupBalancer) *member {
	joined := &member{done: make(chan struct{}), values: map[string]bool{}, owned: map[int32]bool{}}
	change := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			joined.mutex.Lock()
			defer joined.mutex.Unlock()
			for _, partition := range changed["go"] {
				if owns {
					joined.owned[partition] = true
				} else {
					delete(joined.owned, partition)
				}
			}
		}
	}
	joined.client = connect(
		kgo.ConsumerGroup(name), kgo.ConsumeTopics("go"), kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	)
	go func() {
		defer close(joined.done)
		for {
			fetches := joined.client.PollFetches(ctx)
			if fetches.IsClientClosed() {
				return
			}
			must(fetches.Err())
			joined.mutex.Lock()
			fetches.EachRecord(func(record *kgo.Record) { joined.values[string(record.Value)] = true })
			joined.mutex.Unlock()
		}
	}()
	return joined
}

func (m *member) close() {
	m.client.Close()
	<-m.done
}

func settle(members []*member) {
	until(func() bool {
		all, count := map[int32]bool{}, 0
		for _, each := range members {
			each.mutex.Lock()
			for partition := range each.owned {
				all[partition] = true
			}
			count += len(each.owned)
			some := len(each.owned) > 0
			each.mutex.Unlock()
			if !some {
				return false
			}
		}
		return count == partitions && len(all) == partitions
	}, fmt.Sprintf("%d members own every partition once", len(members)))
}

func group(ctx context.Context, admin *kadm.Client, name string, balancer kgo.GroupBalancer) {
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		producer := connect(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer producer.Close()
		for number := 0; ; number++ {
			select {
			case <-stop:
				must(producer.Flush(ctx))
				stopped <- number
				return
			case <-time.After(3 * time.Millisecond):
				value := []byte(fmt.Sprint(name, number))
				record := &kgo.Record{Topic: "go", Partition: int32(number % partitions), Value: value}
				producer.Produce(ctx, record, func(_ *kgo.Record, err error) { must(err) })
			}
		}
	}()
	members := []*member{join(ctx, name, balancer)}
	settle(members)
	members = append(members, join(ctx, name, balancer), join(ctx, name, balancer))
	settle(members)
	described, err := admin.DescribeGroups(ctx, name)
	must(err)
	check(len(described[name].Members) == 3, "three members")
	members[0].close()
	settle(members[1:])
	close(stop)
	sent := <-stopped
	until(func() bool {
		for number := 0; number < sent; number++ {
			if value := fmt.Sprint(name, number); !anyHas(members, value) {
				return false
			}
		}
		return true
	}, "every record is consumed")
	members[1].close()
	members[2].close()
	say(name)
}

func anyHas(members []*member, value string) bool {
	for _, each := range members {
		each.mutex.Lock()
		has := each.values[value]
		each.mutex.Unlock()
		if has {
			return true
		}
	}
	return false
}

func transactions(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	producer := connect(kgo.TransactionalID("unsupported"))
	defer producer.Close()
	err := producer.BeginTransaction()
	if err == nil {
		err = producer.ProduceSync(limited, &kgo.Record{Topic: "go", Value: []byte("never")}).FirstErr()
	}
	check(err != nil && limited.Err() == nil, "transactions are refused at once: %v", err)
	say("transactions")
}

func produce(ctx context.Context, from, to int) {
	producer := connect()
	defer producer.Close()
	for number := from; number < to; number++ {
		record := &kgo.Record{Topic: "resumed", Value: []byte(fmt.Sprint(number))}
		must(producer.ProduceSync(ctx, record).FirstErr())
		check(record.Offset == int64(number), "offset %d is %d", number, record.Offset)
	}
}

func resume(ctx context.Context, from, to int) {
	consumer := connect(
		kgo.ConsumerGroup("resumed"), kgo.ConsumeTopics("resumed"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer consumer.Close()
	next := from
	for next < to {
		fetches := consumer.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			check(string(record.Value) == fmt.Sprint(next), "record %d is %s", next, record.Value)
			next++
		})
	}
	must(consumer.CommitUncommittedOffsets(ctx))
	say(fmt.Sprint("resumed at ", from))
}

func reset(ctx context.Context, admin *kadm.Client) {
	offsets := kadm.Offsets{}
	offsets.AddOffset("resumed", 0, 90, -1)
	must(admin.CommitAllOffsets(ctx, "resumed", offsets))
	found, err := admin.FetchOffsets(ctx, "resumed")
	must(err)
	offset, _ := found.Lookup("resumed", 0)
	check(offset.At == 90, "reset: %v", offset)
	deleted, err := admin.DeleteRecords(ctx, offsets)
	must(err)
	must(deleted.Error())
	starts, err := admin.ListStartOffsets(ctx, "resumed")
	must(err)
	start, _ := starts.Lookup("resumed", 0)
	check(start.Offset == 90, "deleted records: %v", start)
	_, err = admin.DeleteGroup(ctx, "resumed")
	must(err)
	listed, err := admin.ListGroups(ctx)
	must(err)
	_, there := listed["resumed"]
	check(!there, "a deleted group is listed")
	say("reset")
}

func until(condition func() bool, what string) {
	for end := time.Now().Add(settled); !condition(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(end), "%s", what)
	}
}

func must(err error) {
	check(err == nil, "no error: %v", err)
}

func check(condition bool, what string, details ...any) {
	if !condition {
		fmt.Fprintln(os.Stderr, "expected:", fmt.Sprintf(what, details...))
		os.Exit(1)
	}
}

func say(what string) {
	fmt.Println("ok", what)
}
