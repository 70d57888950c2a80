package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/open-leaderboard/leaderboard"
)

// ErrRejected means that the brokers refuse the credentials or the certificate of this
// client, or that the brokers' certificate is not valid. For [errors.Is], ErrRejected is
// also a [leaderboard.ErrUnavailable]. A retry can succeed only after an operator has
// corrected the settings or the brokers.
var ErrRejected error = rejectedError{}

type rejectedError struct{}

func (rejectedError) Error() string { return "the brokers reject this client" }

func (rejectedError) Is(target error) bool { return target == leaderboard.ErrUnavailable }

// ConnectError describes err, the error of connecting to brokers with the configuration c.
// The result has one line, which may name the settings to correct. It wraps [ErrRejected] or
// an error that [Unavailable] returns. If err is nil, the result is nil.
func ConnectError(brokers []string, c *sarama.Config, err error) error {
	if err == nil {
		return nil
	}
	address := "brokers " + strings.Join(brokers, ",")
	if errors.Is(err, sarama.ErrOutOfBrokers) {
		// err may lack its cause, or have a line for each broker.
		err = cause(brokers, c, err)
	}
	verification, op := (*tls.CertificateVerificationError)(nil), (*net.OpError)(nil)
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return fmt.Errorf("%s: %w: correct kafka.username and kafka.password of user %q with %s: %w", address, ErrRejected, c.Net.SASL.User, c.Net.SASL.Mechanism, err)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return fmt.Errorf("%s: %w: the brokers do not offer kafka.mechanism %s: %w", address, ErrRejected, c.Net.SASL.Mechanism, err)
	case errors.Is(err, sarama.ErrIllegalSASLState):
		return fmt.Errorf("%s: %w: the brokers do not authenticate users at this address: remove kafka.username, or set another address: %w", address, ErrRejected, err)
	case errors.As(err, &verification), errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("%s: %w: %w", address, ErrRejected, err)
	case errors.Is(err, io.EOF) && c.Net.SASL.Enable:
		return fmt.Errorf("%s: the brokers close the connection, and may refuse kafka.username and kafka.password, or require kafka.tls.enabled: %w", address, Unavailable(err))
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the brokers close the connection, and may require kafka.username or kafka.tls.enabled: %w", address, Unavailable(err))
	}
	return fmt.Errorf("%s: %w", address, Unavailable(err))
}

// cause returns one broker's error in err, which is a [sarama.ErrOutOfBrokers]. If err contains
// no error of a broker, cause connects to the first broker to get its error.
func cause(brokers []string, c *sarama.Config, err error) error {
	if wrapped, ok := errors.Unwrap(err).(interface{ Unwrap() []error }); ok {
		return wrapped.Unwrap()[0]
	}
	b := sarama.NewBroker(brokers[0])
	if connErr := b.Open(c); connErr != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if _, connErr := b.Connected(); connErr != nil {
		return fmt.Errorf("%s: %w", brokers[0], connErr)
	}
	return err
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func (d dialer) Dial(network, addr string) (net.Conn, error) {
	return d(context.Background(), network, addr)
}

type scramClient struct {
	mechanism    string
	conversation *scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authzID string) error {
	hash := scram.SHA512
	if s.mechanism == sarama.SASLTypeSCRAMSHA256 {
		hash = scram.SHA256
	}
	client, err := hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	s.conversation = client.NewConversation()
	return nil
}

func (s *scramClient) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }

func (s *scramClient) Done() bool { return s.conversation.Done() }
