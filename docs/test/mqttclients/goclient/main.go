// Goclient publishes the lines of standard input with the Go clients of Eclipse Paho: goclient URL QOS
// VERSION. SSL_CERT_FILE has the CA.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	mqtt "github.com/eclipse/paho.mqtt.golang"
)

func main() {
	target, err := url.Parse(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	qos, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	connect := connect3
	if os.Args[3] == "5" {
		connect = connect5
	}
	publish, end := connect(target)
	lines := bufio.NewScanner(os.Stdin)
	for n := 1; lines.Scan(); n++ {
		var reading struct{ Device string }
		if err := json.Unmarshal(lines.Bytes(), &reading); err != nil {
			log.Fatal(err)
		}
		reason, err := publish("pulsegate/"+reading.Device, byte(qos), []byte(lines.Text()))
		if reason != "" {
			fmt.Printf("rejected %d: %s\n", n, reason)
		} else if err != nil {
			log.Fatal(err)
		}
	}
	end()
}

// A publisher publishes a message and returns the reason for which it was rejected, if any.
type publisher func(topic string, qos byte, payload []byte) (reason string, err error)

const user = "bed-7" // a gateway

// connect3 connects with MQTT 3.1.1.
func connect3(target *url.URL) (publisher, func()) {
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker(target.String()).SetClientID("go").SetProtocolVersion(4).
		SetUsername(user).SetPassword(os.Getenv("PULSEGATE_TOKEN")))
	wait := func(t mqtt.Token) error { t.Wait(); return t.Error() }
	if err := wait(c.Connect()); err != nil {
		log.Fatal(err)
	}
	return func(topic string, qos byte, payload []byte) (string, error) {
		return "", wait(c.Publish(topic, qos, false, payload))
	}, func() { c.Disconnect(1000) }
}

// connect5 connects with MQTT 5.
func connect5(target *url.URL) (publisher, func()) {
	var conn net.Conn
	var err error
	if target.Scheme == "mqtts" {
		conn, err = tls.Dial("tcp", target.Host, nil)
	} else {
		conn, err = net.Dial("tcp", target.Host)
	}
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	// The client writes a packet in several calls, and sends a ping at the same time as the first one.
	c := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(conn)})
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "go", KeepAlive: 30, CleanStart: true,
		UsernameFlag: true, Username: user, PasswordFlag: true, Password: []byte(os.Getenv("PULSEGATE_TOKEN"))}); err != nil {
		log.Fatal(err)
	}
	return func(topic string, qos byte, payload []byte) (reason string, err error) {
			answer, err := c.Publish(ctx, &paho.Publish{Topic: topic, QoS: qos, Payload: payload})
			if answer != nil && answer.Properties != nil {
				reason = answer.Properties.ReasonString
			}
			return reason, err
		}, func() {
			if err := c.Disconnect(&paho.Disconnect{}); err != nil {
				log.Fatal(err)
			}
		}
}
