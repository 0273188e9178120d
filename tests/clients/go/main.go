// Tests a server with gomemcache. Fails if the server does not do what that client documents.
//
// Usage: go run . HOST:PORT
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . HOST:PORT")
	}
	client := memcache.New(os.Args[1])
	client.Timeout = 10 * time.Second
	checks := []struct {
		name  string
		check func(*memcache.Client) error
	}{
		{"set and get", setAndGet}, {"add and replace", addAndReplace},
		{"append and prepend", appendAndPrepend}, {"get multi", getMulti},
		{"compare and swap", compareAndSwap}, {"delete", deletes},
		{"increment", increments}, {"touch and expiry", touches},
		{"large values", largeValues}, {"bad keys", badKeys},
		{"many at once", manyAtOnce}, {"flush", flushes}, {"ping", (*memcache.Client).Ping},
	}
	for _, one := range checks {
		if err := one.check(client); err != nil {
			log.Fatalf("gomemcache: %s: %v", one.name, err)
		}
	}
	fmt.Printf("gomemcache: %d checks passed\n", len(checks))
}

// want fails if err is not the expected error.
func want(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return fmt.Errorf("expected %v, got %v", expected, err)
}

// all returns the first of the errors.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// holds fails if key does not have this value and these flags.
func holds(c *memcache.Client, key, value string, flags uint32) error {
	item, err := c.Get(key)
	if err != nil {
		return fmt.Errorf("get %s: %w", key, err)
	}
	if string(item.Value) != value || item.Flags != flags || item.Key != key {
		return fmt.Errorf("get %s: %.60q flags %d", item.Key, item.Value, item.Flags)
	}
	return nil
}

func setAndGet(c *memcache.Client) error {
	for _, value := range []string{"", "x", "two\r\nlines\x00\xff", strings.Repeat("v", 9000)} {
		item := &memcache.Item{Key: "go", Value: []byte(value), Flags: 4294967295}
		if err := c.Set(item); err != nil {
			return err
		}
		if err := holds(c, "go", value, 4294967295); err != nil {
			return err
		}
	}
	_, err := c.Get("go-nosuch")
	return want(memcache.ErrCacheMiss, err)
}

func addAndReplace(c *memcache.Client) error {
	item := &memcache.Item{Key: "go-add", Value: []byte("1"), Flags: 7}
	return all(
		want(memcache.ErrNotStored, c.Replace(item)),
		want(nil, c.Add(item)),
		want(memcache.ErrNotStored, c.Add(&memcache.Item{Key: "go-add", Value: []byte("2")})),
		holds(c, "go-add", "1", 7),
		want(nil, c.Replace(&memcache.Item{Key: "go-add", Value: []byte("three")})),
		holds(c, "go-add", "three", 0),
	)
}

func appendAndPrepend(c *memcache.Client) error {
	piece := func(value string) *memcache.Item {
		return &memcache.Item{Key: "go-append", Value: []byte(value), Flags: 9}
	}
	return all(
		want(memcache.ErrNotStored, c.Append(piece("x"))),
		want(memcache.ErrNotStored, c.Prepend(piece("x"))),
		want(nil, c.Set(&memcache.Item{Key: "go-append", Value: []byte("mid"), Flags: 5})),
		want(nil, c.Append(piece("end"))),
		want(nil, c.Prepend(piece("beg"))),
		holds(c, "go-append", "begmidend", 5),
	)
}

func getMulti(c *memcache.Client) error {
	const count = 1000
	keys := []string{"go-nosuch"}
	for i := 0; i < count; i++ {
		key := "go-multi-" + strconv.Itoa(i)
		keys = append(keys, key)
		if err := c.Set(&memcache.Item{Key: key, Value: []byte(key), Flags: uint32(i)}); err != nil {
			return err
		}
	}
	items, err := c.GetMulti(keys)
	if err != nil {
		return err
	}
	if len(items) != count {
		return fmt.Errorf("%d items of %d", len(items), count)
	}
	for key, item := range items {
		if string(item.Value) != key || key != "go-multi-"+strconv.Itoa(int(item.Flags)) {
			return fmt.Errorf("%s holds %q", key, item.Value)
		}
	}
	return nil
}

func compareAndSwap(c *memcache.Client) error {
	if err := c.Set(&memcache.Item{Key: "go-cas", Value: []byte("1")}); err != nil {
		return err
	}
	first, err := c.Get("go-cas")
	if err != nil {
		return err
	}
	second, err := c.Get("go-cas")
	if err != nil {
		return err
	}
	first.Value, second.Value = []byte("first"), []byte("second")
	err = all(
		want(nil, c.CompareAndSwap(first)),
		want(memcache.ErrCASConflict, c.CompareAndSwap(second)),
		holds(c, "go-cas", "first", 0),
		want(nil, c.Delete("go-cas")),
		want(memcache.ErrCacheMiss, c.CompareAndSwap(second)),
	)
	return err
}

func deletes(c *memcache.Client) error {
	return all(
		want(nil, c.Set(&memcache.Item{Key: "go-del", Value: []byte("1")})),
		want(nil, c.Delete("go-del")),
		want(memcache.ErrCacheMiss, c.Delete("go-del")),
	)
}

func increments(c *memcache.Client) error {
	if err := c.Set(&memcache.Item{Key: "go-n", Value: []byte("18446744073709551614")}); err != nil {
		return err
	}
	steps := []struct {
		step  func(string, uint64) (uint64, error)
		delta uint64
		value uint64
	}{
		{c.Increment, 1, 18446744073709551615}, {c.Increment, 3, 2}, {c.Increment, 98, 100},
		{c.Decrement, 95, 5}, {c.Decrement, 6, 0},
	}
	for _, one := range steps {
		if value, err := one.step("go-n", one.delta); err != nil || value != one.value {
			return fmt.Errorf("expected %d, got %d, %v", one.value, value, err)
		}
	}
	_, err := c.Increment("go-nosuch", 1)
	if err := want(memcache.ErrCacheMiss, err); err != nil {
		return err
	}
	if err := c.Set(&memcache.Item{Key: "go-n", Value: []byte("x")}); err != nil {
		return err
	}
	if _, err = c.Increment("go-n", 1); err == nil || !strings.Contains(err.Error(), "non-numeric") {
		return fmt.Errorf("incremented x: %v", err)
	}
	return nil
}

func touches(c *memcache.Client) error {
	past, future := int32(-1), int32(time.Now().Unix()+1000)
	item := &memcache.Item{Key: "go-t", Value: []byte("1"), Expiration: future}
	expired := &memcache.Item{Key: "go-t2", Value: []byte("1"), Expiration: past}
	return all(
		want(nil, c.Set(item)), holds(c, "go-t", "1", 0),
		want(nil, c.Touch("go-t", 100)), holds(c, "go-t", "1", 0),
		want(nil, c.Touch("go-t", past)),
		want(memcache.ErrCacheMiss, c.Touch("go-t", 0)),
		want(nil, c.Set(expired)),
		want(memcache.ErrCacheMiss, c.Delete("go-t2")),
	)
}

func largeValues(c *memcache.Client) error {
	for _, bytes := range []int{16 << 10, 100 << 10, 1<<20 - 200} {
		value := strings.Repeat("0123456789abcde\n", bytes/16)
		if err := c.Set(&memcache.Item{Key: "go-large", Value: []byte(value)}); err != nil {
			return err
		}
		if err := holds(c, "go-large", value, 0); err != nil {
			return err
		}
	}
	tooLarge := bytes.Repeat([]byte("x"), 1<<20)
	err := c.Set(&memcache.Item{Key: "go-large", Value: tooLarge})
	if err == nil || !strings.Contains(err.Error(), "object too large for cache") {
		return fmt.Errorf("a mebibyte: %v", err)
	}
	_, err = c.Get("go-large")
	return want(memcache.ErrCacheMiss, err)
}

func badKeys(c *memcache.Client) error {
	long := strings.Repeat("k", 250)
	return all(
		want(nil, c.Set(&memcache.Item{Key: long, Value: []byte("1")})),
		holds(c, long, "1", 0),
		want(memcache.ErrMalformedKey, c.Set(&memcache.Item{Key: long + "k", Value: []byte("1")})),
	)
}

// manyAtOnce increments a number from many connections at once; no increment may be lost.
func manyAtOnce(c *memcache.Client) error {
	const workers, rounds = 16, 500
	c.MaxIdleConns = workers
	if err := c.Set(&memcache.Item{Key: "go-sum", Value: []byte("0")}); err != nil {
		return err
	}
	errs := make([]error, workers)
	var group sync.WaitGroup
	for worker := range errs {
		worker := worker
		group.Add(1)
		go func() {
			defer group.Done()
			for round := 0; round < rounds && errs[worker] == nil; round++ {
				_, errs[worker] = c.Increment("go-sum", 1)
			}
		}()
	}
	group.Wait()
	if err := all(errs...); err != nil {
		return err
	}
	item, err := c.Get("go-sum")
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(item.Value)); got != strconv.Itoa(workers*rounds) {
		return fmt.Errorf("%s increments of %d", got, workers*rounds)
	}
	return nil
}

func flushes(c *memcache.Client) error {
	if err := c.Set(&memcache.Item{Key: "go-f", Value: []byte("1")}); err != nil {
		return err
	}
	if err := c.FlushAll(); err != nil {
		return err
	}
	_, err := c.Get("go-f")
	return want(memcache.ErrCacheMiss, err)
}
