// How ranks without MPI meet, as somebody beside them sees it: whoever is not of the run cannot
// hold it up, end it or write through it, and a rank that goes wrong ends it with a message.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "backends/comm/tcp/handshake.h"
#include "backends/comm/tcp/messages.h"
#include "cli/run_binary.h"
#include "support/joined_processes.h"
#include "support/scoped_variable.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// This command joins the others and then predicts, which needs no device.
constexpr const char* kCommand =
    "memory --predict --size tiny --context 64 --batch 2 --mode step --parallel dp=2 --format csv";
const std::string kTable = "predicted_peak_bytes";
const std::string kHex(64, 'a');
constexpr Secret kSecret = [] {
  Secret out{};
  out.fill(0xaa);
  return out;
}();

struct Place {
  std::string secret = kHex, host = "127.0.0.1";
  int port = testing::free_port(), count = 2;
  double timeout_s = 30.0;
};

ProgramRun run_rank(int rank, const Place& place,
                    const std::function<void(pid_t)>& while_running = {}) {
  return run_tracestep(
      words_of(kCommand),
      {.environment = {fmt::format("RANK={}", rank), "LOCAL_RANK=0",
                       fmt::format("WORLD_SIZE={}", place.count), "MASTER_ADDR=" + place.host,
                       fmt::format("MASTER_PORT={}", place.port),
                       "TRACESTEP_COMM_SECRET=" + place.secret,
                       fmt::format("TRACESTEP_COMM_TIMEOUT={}", place.timeout_s)},
       .while_running = while_running});
}

// A connection of somebody else to process 0, once that listens.
class Visitor {
 public:
  explicit Visitor(const Place& place) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(place.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    for (int i = 0; i < 1000; ++i) {
      socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      const auto* generic = reinterpret_cast<const sockaddr*>(&address);
      if (::connect(socket_, generic, sizeof address) == 0) return;
      leave();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "nobody listens";
  }
  ~Visitor() { leave(); }
  Visitor(Visitor&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Visitor& operator=(Visitor&&) = delete;

  void leave() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  // False once the other end is gone.
  bool say(std::span<const std::byte> bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  }
  bool say(std::string_view text) const { return say(std::as_bytes(std::span(text))); }
  bool hear(std::span<std::byte> bytes) const {
    return ::recv(socket_, bytes.data(), bytes.size(), MSG_WAITALL) == std::ssize(bytes);
  }
  bool is_refused() const {
    std::byte next{};
    return ::recv(socket_, &next, 1, 0) <= 0;
  }

 private:
  int socket_ = -1;
};

template <class T>
std::string_view text_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string message(MessageKind kind, int status, std::uint64_t bytes, std::string_view text = {}) {
  const MessageHeader header{kind, status, bytes};
  return std::string(text_of(header)) + std::string(text);
}

// Greets as rank 1 of the run did before there were secrets.
std::string without_secret(const std::string& messages) {
  const std::int32_t rank = 1;
  return std::string(text_of(rank)) + messages;
}

// Rank 0 meets `visit`, and then the real rank 1.
ProgramRun expect_both_end_well(const std::function<void(const Place&)>& visit) {
  const Place place;
  ProgramRun other;
  const ProgramRun first = run_rank(0, place, [&](pid_t) {
    visit(place);
    other = run_rank(1, place);
  });
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(first.out, HasSubstr(kTable));
  EXPECT_EQ(other.out, "");
  return first;
}

TEST(MeetingTest, OneThatConnectsAndSaysNothingHoldsNobodyUp) {
  std::vector<Visitor> silent;
  expect_both_end_well([&](const Place& place) {
    silent.emplace_back(place);
    silent.emplace_back(place).say(std::string_view("\1\0", 2));
    silent.emplace_back(place).say(std::string_view(kMagic.data(), kMagic.size()));
  });
}

TEST(MeetingTest, ScansAndOtherProtocolsAreDroppedAndSaid) {
  const ProgramRun run = expect_both_end_well([](const Place& place) {
    Visitor(place).leave();
    const Visitor browser(place);
    browser.say("GET / HTTP/1.0\r\n\r\n");
    Greeting greeting;
    browser.hear(std::as_writable_bytes(std::span(&greeting, 1)));
    EXPECT_TRUE(browser.is_refused());
  });
  EXPECT_THAT(run.err, HasSubstr("is no process of this run and was dropped: it went without"));
  EXPECT_THAT(run.err, HasSubstr("dropped: it is another program or version"));
}

TEST(MeetingTest, StrangersNeitherEndARunNorWriteThroughIt) {
  const std::string text = "\x1b]0;owned\a\x1b[2J";
  const ProgramRun run = expect_both_end_well([&](const Place& place) {
    Visitor(place).say(without_secret(message(MessageKind::kFailed, 0, 0)));
    Visitor(place).say(without_secret(message(MessageKind::kFailed, 3, text.size(), text)));
  });
  EXPECT_THAT(run.err, Not(HasSubstr("\x1b")));
}

TEST(MeetingTest, AFloodIsSaidInAFewLinesAndTakesNoMemory) {
  const ProgramRun run = expect_both_end_well([](const Place& place) {
    std::vector<Visitor> silent;
    for (int i = 0; i < 300; ++i) silent.emplace_back(place);
    for (int i = 0; i < 300; ++i) {
      Visitor(place).say(without_secret(message(MessageKind::kData, 0, 8, "eight by")));
    }
    const Visitor endless(place);
    while (endless.say(std::string(4096, 'x'))) continue;
  });
  EXPECT_LE(std::ranges::count(run.err, '\n'), 8) << run.err;
  EXPECT_THAT(run.err, HasSubstr("of more of them nothing is said"));
}

TEST(MeetingTest, AHelloIsWorthNothingOnAnotherConnection) {
  const auto greeting_of = [](const Visitor& visitor) {
    Greeting out;
    EXPECT_TRUE(visitor.hear(std::as_writable_bytes(std::span(&out, 1))));
    return out;
  };
  expect_both_end_well([&](const Place& place) {
    const Visitor first(place), second(place);
    const Hello overheard = answer_to(greeting_of(first), kSecret, 1, 2, random_bytes()).value();
    greeting_of(second);
    second.say(text_of(overheard));
    EXPECT_TRUE(second.is_refused());
  });
}

TEST(MeetingTest, TwoRunsOnOnePortAreToldApart) {
  const Place place{.timeout_s = 20.0},
      other{.secret = std::string(64, 'b'), .port = place.port, .timeout_s = 1.0};
  std::future<ProgramRun> own_rank;
  ProgramRun others[2];
  const ProgramRun first = run_rank(0, place, [&](pid_t) {
    Visitor(place).leave();
    others[0] = run_rank(0, other);
    others[1] = run_rank(1, other);
    own_rank = std::async(std::launch::async, [&] { return run_rank(1, place); });
  });
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(own_rank.get().status, 0);
  EXPECT_THAT(first.err, HasSubstr("it does not know the secret of this run"));
  EXPECT_EQ(others[0].status, 1);
  EXPECT_THAT(others[0].err, HasSubstr("cannot be used: Address already in use"));
  EXPECT_EQ(others[1].status, 1);
  EXPECT_THAT(others[1].err, HasSubstr("it has another secret, or is of another run"));
}

TEST(MeetingTest, AStrangerInThePlaceOfProcess0IsNotFollowed) {
  const Place place{.timeout_s = 1.0};
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(place.port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 16), 0);
  std::thread stranger([&] {
    for (int one = 0; (one = ::accept(listener, nullptr, nullptr)) >= 0; ::close(one)) {
      const Greeting greeting;
      Hello hello;
      ::send(one, &greeting, sizeof greeting, MSG_NOSIGNAL);
      ::recv(one, &hello, sizeof hello, MSG_WAITALL);
      // The stranger returns the proof that the rank itself has just sent.
      ::send(one, &hello.proof, sizeof hello.proof, MSG_NOSIGNAL);
    }
  });
  const ProgramRun run = run_rank(1, place);
  ::shutdown(listener, SHUT_RDWR);
  stranger.join();
  ::close(listener);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("it does not know the secret of this run"));
}

// The local addresses on which a port is listened to.
std::vector<std::string> listening_on(int port) {
  std::ifstream sockets("/proc/net/tcp");
  std::vector<std::string> out;
  const std::string end = fmt::format(":{:04X}", port);
  std::string number, local, remote, state;
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream(line) >> number >> local >> remote >> state;
    if (state == "0A" && local.ends_with(end)) out.push_back(local.substr(0, 8));
  }
  return out;
}

TEST(MeetingTest, ProcessZeroListensOnItsAddressAlone) {
  const Place place{.timeout_s = 0.5};
  std::vector<std::string> addresses;
  const ProgramRun run = run_rank(0, place, [&](pid_t) {
    Visitor(place).leave();
    addresses = listening_on(place.port);
  });
  EXPECT_EQ(addresses, std::vector<std::string>{"0100007F"});
  EXPECT_THAT(run.err, HasSubstr("1 of 2 processes have come to 127.0.0.1"));
}

TEST(MeetingTest, WithoutASecretRanksMeetOnTheirOwnMachineAlone) {
  const TempFolder folder;
  const std::string file = (folder / "secret").string();
  const ProgramRun refused = run_rank(0, {.secret = "", .host = "192.0.2.1"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("strangers could join the processes on 192.0.2.1"));
  // The line that it says makes one.
  const std::size_t begin = refused.err.find("(umask"), end = refused.err.find("FILE)", begin);
  ASSERT_NE(end, std::string::npos) << refused.err;
  const std::string line = refused.err.substr(begin, end - begin) + file + ")";
  ASSERT_EQ(std::system(line.c_str()), 0) << line;
  const ScopedVariable variable("TRACESTEP_COMM_SECRET_FILE", file.c_str());
  const Place named{.secret = "", .host = "localhost"};
  ProgramRun other;
  const ProgramRun run = run_rank(0, named, [&](pid_t) { other = run_rank(1, named); });
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(run.err, Not(HasSubstr("without a secret")));
  ::chmod(file.c_str(), 0644);
  const ProgramRun open = run_rank(1, named);
  EXPECT_EQ(open.status, 3);
  EXPECT_THAT(open.err, HasSubstr("secret has mode 644"));
}

TEST(MeetingTest, TheSecretIsShownNowhere) {
  const RunHow how{.environment = {"TRACESTEP_COMM_SECRET=" + kHex}};
  const ProgramRun run = run_tracestep({"doctor", "--all"}, how);
  EXPECT_THAT(run.out, HasSubstr("TRACESTEP_COMM_SECRET"));
  EXPECT_THAT(run.out + run.err, Not(HasSubstr("aaaa")));
  const ProgramRun wrong = run_rank(0, {.secret = "5e5e" + kHex});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("[TRACESTEP_COMM_SECRET] it does not hold 64 hexadecimal"));
  EXPECT_THAT(wrong.err, Not(HasSubstr("5e5e")));
}

// A process that knows the secret.
Visitor join_as(int rank, const Place& place) {
  Visitor out(place);
  Greeting greeting;
  out.hear(std::as_writable_bytes(std::span(&greeting, 1)));
  const Hello hello = answer_to(greeting, kSecret, rank, place.count, random_bytes()).value();
  out.say(text_of(hello));
  Proof proof{};
  out.hear(std::as_writable_bytes(std::span(&proof, 1)));
  EXPECT_EQ(proof, proof_of_first(greeting, hello, kSecret));
  return out;
}

// Rank 0 beside a rank 1 that says `text`.
ProgramRun run_beside(const std::string& text) {
  const Place place{.timeout_s = 2.0};
  return run_rank(0, place, [&](pid_t) {
    const Visitor visitor = join_as(1, place);
    visitor.say(text);
    while (!visitor.is_refused()) continue;  // until rank 0 has ended
  });
}

TEST(MeetingTest, ARankThatIsNotListenedToCannotFillTheMemory) {
  const Place place{.count = 3};
  const ProgramRun run = run_rank(0, place, [&](pid_t) {
    const Visitor first = join_as(1, place), second = join_as(2, place);
    while (second.say(message(MessageKind::kData, 0, 4096, std::string(4096, 'x')))) continue;
  });
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("[rank 2] it sent 17 messages that nobody waits for"));
}

struct Said {
  std::string name, text;
  int status;
  std::string message;
};

class RankOneTest : public ::testing::TestWithParam<Said> {};

TEST_P(RankOneTest, WhatItMustNotSayEndsTheRunWithAMessage) {
  const ProgramRun run = run_beside(GetParam().text);
  EXPECT_EQ(run.status, GetParam().status) << run.err;
  EXPECT_THAT(run.err, HasSubstr(GetParam().message));
  EXPECT_THAT(run.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(run.err, Not(HasSubstr("report it")));
}

constexpr std::uint64_t kHuge = ~std::uint64_t{0};
const auto kFailed = MessageKind::kFailed, kData = MessageKind::kData;
INSTANTIATE_TEST_SUITE_P(
    Said, RankOneTest,
    ::testing::Values(
        Said{"FailedWithStatus0", message(kFailed, 0, 0), 1, "[rank 1] it failed"},
        Said{"FailedWithStatus256", message(kFailed, 256, 0), 1, "[rank 1] it failed"},
        Said{"FailedWithStatusMinus1", message(kFailed, -1, 4, "text"), 1, "text\n"},
        Said{"FailedWithItsOwnStatus", message(kFailed, 5, 4, "text"), 5, "text\n"},
        Said{"EscapeSequences", message(kFailed, 3, 9, "\x1b[2J\x1b[1;1"), 3, "\\x1b[2J\\x1b[1;1"},
        Said{"MoreThanIsExpected", message(kData, 0, 4096, std::string(4096, 'x')), 1,
             "[rank 1] it sent 4096 bytes where 8 were expected; it is another program or version"},
        Said{"Nothing", message(kData, 0, 0), 1, "[rank 1] it sent 0 bytes where 8 were expected"},
        Said{"ALengthBeyondAllMemory", message(kData, 0, kHuge), 1,
             "[rank 1] it sent 18446744073709551615 bytes where 4096 were expected"},
        Said{"ATextWithoutEnd", message(kFailed, 1, 4097), 1,
             "[rank 1] it sent 4097 bytes where 4096 were expected"},
        Said{"AnUnknownKind", message(static_cast<MessageKind>(77), 0, 0), 1,
             "[rank 1] it sent a message of kind 77"},
        Said{"HalfAMessage", message(kData, 0, 8, "eig"), 1, "[rank 1] it "}),
    [](const auto& said) { return said.param.name; });

}  // namespace
}  // namespace tracestep
