// The bytes of the handshake and of messages, without sockets.
#include "backends/comm/tcp/handshake.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>

#include "backends/comm/launch/launched.h"
#include "backends/comm/tcp/connection.h"
#include "backends/comm/tcp/messages.h"
#include "support/scoped_variable.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class HandshakeTest : public ::testing::Test {
 protected:
  Heard hear_hello(const Hello& hello, const Greeting& greeting, int count = 3) const {
    return hear(bytes_of(hello), greeting, secret_, count);
  }

  const Secret secret_ = random_bytes();
  const Greeting greeting_{.nonce = random_bytes()};
  const Hello hello_ = answer_to(greeting_, secret_, 2, 3, random_bytes()).value();
};

TEST_F(HandshakeTest, WhoKnowsTheSecretIsTheRankThatItSays) {
  EXPECT_EQ(hear_hello(hello_, greeting_).rank, 2);
  for (std::size_t bytes = 0; bytes < sizeof hello_; ++bytes) {
    const Heard part = hear(bytes_of(hello_).first(bytes), greeting_, secret_, 3);
    EXPECT_TRUE(!part.rank && part.problem.empty()) << bytes;
  }
}

TEST_F(HandshakeTest, EveryBitOfAHelloCounts) {
  for (std::size_t bit = 0; bit < 8 * sizeof hello_; ++bit) {
    Hello changed = hello_;
    std::as_writable_bytes(std::span(&changed, 1))[bit / 8] ^= std::byte(1u << bit % 8);
    EXPECT_FALSE(hear_hello(changed, greeting_).rank) << bit;
  }
}

TEST_F(HandshakeTest, AHelloIsForOneConnectionAndOneSecretAlone) {
  const Greeting another{.nonce = random_bytes()};
  EXPECT_EQ(hear_hello(hello_, another).problem, "it does not know the secret of this run");
  const Hello stranger = answer_to(greeting_, random_bytes(), 2, 3, random_bytes()).value();
  EXPECT_EQ(hear_hello(stranger, greeting_).problem, "it does not know the secret of this run");
}

TEST_F(HandshakeTest, AProofIsForOneDirectionAlone) {
  const Proof first = proof_of_first(greeting_, hello_, secret_);
  EXPECT_FALSE(is_same(first, hello_.proof));
  Hello reflected = hello_;
  reflected.proof = first;
  EXPECT_FALSE(hear_hello(reflected, greeting_).rank);
  EXPECT_FALSE(is_same(first, proof_of_first(greeting_, hello_, random_bytes())));
}

TEST_F(HandshakeTest, WhoKnowsTheSecretAndDoesNotFitIsNamed) {
  EXPECT_EQ(hear_hello(hello_, greeting_, 4).problem,
            "it belongs to a run of 3 processes, not of 4");
  const Hello zero = answer_to(greeting_, secret_, 0, 3, random_bytes()).value();
  EXPECT_EQ(hear_hello(zero, greeting_).problem, "it is rank 0 of 3");
  const Hello beyond = answer_to(greeting_, secret_, 3, 3, random_bytes()).value();
  EXPECT_EQ(hear_hello(beyond, greeting_).problem, "it is rank 3 of 3");
}

TEST_F(HandshakeTest, AnotherProtocolIsKnownByItsFirstByte) {
  const std::string http = "GET / HTTP/1.0";
  EXPECT_EQ(hear(std::as_bytes(std::span(http)).first(1), greeting_, secret_, 3).problem,
            "it is another program or version");
  Greeting other = greeting_;
  other.magic[15] = 1;
  EXPECT_FALSE(answer_to(other, secret_, 1, 3, random_bytes()));
}

// --- messages -----------------------------------------------------------------------------------

std::vector<Message> read_in_parts(MessageReader& reader, std::string_view text, std::size_t part) {
  std::vector<Message> out;
  while (!text.empty()) {
    const std::size_t n = std::min({part, text.size(), reader.room().size()});
    std::ranges::copy(std::as_bytes(std::span(text.substr(0, n))), reader.room().begin());
    if (auto message = reader.take(n)) out.push_back(std::move(*message));
    text.remove_prefix(n);
  }
  return out;
}

std::string text_of(const MessageHeader& header, std::string_view body = {}) {
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(body);
}

TEST(MessageReaderTest, MessagesAreTheSameHoweverTheyAreCut) {
  const std::string text = text_of({MessageKind::kAlive, 0, 0}) +
                           text_of({MessageKind::kData, 0, 5}, "bytes") +
                           text_of({MessageKind::kFailed, 7, 3}, "why");
  for (std::size_t part = 1; part <= text.size(); ++part) {
    MessageReader reader("rank 1", 8);
    const std::vector<Message> messages = read_in_parts(reader, text, part);
    ASSERT_EQ(messages.size(), 3u) << part;
    EXPECT_EQ(messages[1].bytes.size(), 5u);
    EXPECT_EQ(messages[2].header.status, 7);
    EXPECT_EQ(messages[2].bytes.back(), std::byte('y'));
  }
}

TEST(MessageReaderTest, ALengthBeyondWhatIsAllowedIsRefusedBeforeItIsKept) {
  const auto refusal = [](const MessageHeader& header) {
    MessageReader reader("rank 1", 8);
    return message_of(ErrorCode::kFailed, [&] { read_in_parts(reader, text_of(header), 99); });
  };
  EXPECT_EQ(refusal({MessageKind::kData, 0, 9}),
            "[rank 1] it sent 9 bytes where 8 were expected; it is another program or version");
  EXPECT_TRUE(contains(refusal({MessageKind::kFailed, 0, 1ull << 40}), "where 4096 were"));
  EXPECT_TRUE(contains(refusal({MessageKind::kEnd, 0, 1}), "1 bytes where 0 were expected"));
  EXPECT_TRUE(contains(refusal({static_cast<MessageKind>(4), 0, 0}), "a message of kind 4"));
}

TEST(StatusOfFailureTest, IsOneOfTheProgramsAndNeverThatOfSuccess) {
  for (const int status : {1, 2, 3, 4, 5, 6, 7, 8, 128 + SIGHUP, 128 + SIGTERM, 128 + SIGKILL}) {
    EXPECT_EQ(status_of_failure(status), status);
  }
  for (const int status : {0, -1, 9, 128, 251, 256, 300, 1 << 30}) {
    EXPECT_EQ(status_of_failure(status), 1) << status;
  }
}

// --- secrets and addresses ----------------------------------------------------------------------

TEST(SecretTest, IsReadFromAFileThatOnlyItsOwnerMayUse) {
  const TempFolder folder;
  const ScopedVariable none("TRACESTEP_COMM_SECRET", "");
  const Secret secret = random_bytes();
  const std::string hex = hex_of(secret);
  const auto path = folder.write("secret", " " + hex.substr(0, 32) + "\n " + hex.substr(32) + "\n");
  const ScopedVariable file("TRACESTEP_COMM_SECRET_FILE", path.c_str());
  for (const mode_t mode : {0640u, 0604u, 0620u}) {
    ::chmod(path.c_str(), mode);
    EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [] { secret_of_run(); }),
                         fmt::format("has mode {:o}", mode)));
  }
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(secret_of_run(), secret);
  for (const std::string& text : {hex.substr(1), hex + "00", hex.substr(1) + "g", std::string()}) {
    folder.write("secret", text);
    EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [] { secret_of_run(); }),
                         "does not hold 64 hexadecimal digits"));
  }
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [] { secret_of_run(); }),
                         "belongs to user 12345, and user 0 runs this"));
  }
  std::filesystem::remove(path);
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [] { secret_of_run(); }), "No such file"));
}

TEST(SecretTest, ThatOfTheLauncherComesFirstAndNoneIsNone) {
  const ScopedVariable value("TRACESTEP_COMM_SECRET", std::string(64, '7').c_str()),
      file("TRACESTEP_COMM_SECRET_FILE", "missing");
  EXPECT_EQ(secret_of_run().value()[31], 0x77);
  const ScopedVariable no_value("TRACESTEP_COMM_SECRET", ""),
      no_file("TRACESTEP_COMM_SECRET_FILE", "");
  EXPECT_EQ(secret_of_run(), std::nullopt);
}

TEST(LoopbackTest, OnlyWhatEveryMachineTakesForItselfIsLoopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3"}) EXPECT_TRUE(is_loopback(host));
  for (const char* host : {"node1", "10.0.0.1", "127.0.0.1.example.org", "0.0.0.0", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(ReservedPortTest, ListenersOfTheRunTakeItAndOthersGetAnotherOne) {
  const ReservedPort port = reserve_port(), other = reserve_port();
  EXPECT_NE(port.port, other.port);
  const Connection listener = listen_at("127.0.0.1", port.port);
  EXPECT_THROW(listen_at("127.0.0.1", port.port), Error);
  EXPECT_GE(connect_to("localhost", port.port, deadline_after(1)).socket(), 0);
}

}  // namespace
}  // namespace tracestep
