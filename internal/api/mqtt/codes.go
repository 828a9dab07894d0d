package mqtt

// A code is a reason code of MQTT 5.0, section 2.4.
type code byte

const (
	success            code = 0x00
	unspecified        code = 0x80
	malformed          code = 0x81
	protocolError      code = 0x82
	implementation     code = 0x83 // implementation specific error
	unsupportedVersion code = 0x84
	badIdentifier      code = 0x85
	badCredentials     code = 0x86
	notAuthorized      code = 0x87
	serverUnavailable  code = 0x88
	serverBusy         code = 0x89
	shuttingDown       code = 0x8B
	badAuthentication  code = 0x8C
	keepAliveTimeout   code = 0x8D
	badTopic           code = 0x90
	packetTooLarge     code = 0x95
	quotaExceeded      code = 0x97
	badPayload         code = 0x99
	retainNotSupported code = 0x9A
	topicAliasInvalid  code = 0x94
	noSubscription     code = 0x11 // of UNSUBACK: no subscription existed
)

// An ending is why the server ends a connection. Its text is the label under which it is counted.
type ending byte

const (
	endedByClient ending = iota
	endedMalformed
	endedProtocol
	endedTooLarge
	endedUnsupported // version, retained publications, topic aliases, enhanced authentication
	endedUnauthorized
	endedSlow // a packet was not complete in time
	endedBusy // overload, a nearly full disk, a failing store
	endedDraining
	numEndings
)

var endingTexts = [numEndings]string{"client", "malformed", "protocol", "too_large", "unsupported", "unauthorized",
	"slow", "busy", "draining"}

func (c code) ending() ending {
	switch c {
	case success:
		return endedByClient
	case malformed:
		return endedMalformed
	case packetTooLarge:
		return endedTooLarge
	case unsupportedVersion, retainNotSupported, topicAliasInvalid, badAuthentication:
		return endedUnsupported
	case badCredentials, notAuthorized, badIdentifier:
		return endedUnauthorized
	case serverUnavailable, serverBusy, quotaExceeded, unspecified:
		return endedBusy
	case keepAliveTimeout:
		return endedSlow
	case shuttingDown:
		return endedDraining
	}
	return endedProtocol
}

// connack3 returns the return code of a CONNACK of version 3.1.1 (section 3.2.2.3), and false if the
// connection is closed without one.
func (c code) connack3() (returnCode byte, ok bool) {
	switch c {
	case success:
		return 0, true
	case unsupportedVersion:
		return 1, true
	case badIdentifier:
		return 2, true
	case serverUnavailable, serverBusy, shuttingDown, quotaExceeded, unspecified:
		return 3, true
	case badCredentials:
		return 4, true
	case notAuthorized:
		return 5, true
	}
	return 0, false
}
