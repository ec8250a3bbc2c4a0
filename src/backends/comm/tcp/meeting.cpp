#include "backends/comm/tcp/tcp_processes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "backends/comm/tcp/handshake.h"
#include "base/error.h"
#include "base/log.h"

namespace tracestep {
namespace {

constexpr double kPatienceS = 10.0;          // with one that connects and says nothing
constexpr std::size_t kMostStrangers = 256;  // at a time, beside the ranks
constexpr int kMostAtOnce = 16;              // of those that wait at the door, before guests speak
constexpr int kMostLines = 5;                // about strangers
constexpr std::chrono::milliseconds kUntilItListens{20}, kUntilItIsAnother{500};

[[noreturn]] void fail(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorCode::kFailed, "processes", message, hint);
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> room_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Process 0 while it waits for the others. A connection is a guest until it has proved who it is.
class Reception {
 public:
  Reception(const Launched& self, const Secret& secret, Clock::time_point deadline)
      : self_(self),
        secret_(secret),
        deadline_(deadline),
        listener_(listen_at(self.host, self.port)),
        members_(static_cast<std::size_t>(self.count) - 1) {}

  std::vector<Connection> wait_for_all() {
    while (come_ < self_.count) {
      std::vector<int> sockets{listener_.socket()};
      for (const Guest& guest : guests_) sockets.push_back(guest.connection.socket());
      const auto soonest = guests_.empty() ? deadline_ : std::min(deadline_, guests_.front().until);
      const std::vector<bool> ready = wait_for_any(sockets, soonest);
      for (std::size_t i = 0; i < guests_.size(); ++i) {
        if (ready[i + 1]) listen_to(guests_[i]);
      }
      while (!guests_.empty() && guests_.front().until <= Clock::now()) {
        drop(guests_.front(), "it says nothing");
        guests_.pop_front();
      }
      std::erase_if(guests_, [](const Guest& guest) { return guest.connection.socket() < 0; });
      for (int i = 0; ready[0] && i < kMostAtOnce && welcome(); ++i) continue;
      if (Clock::now() >= deadline_ && come_ < self_.count) fail_for_missing();
    }
    return std::move(members_);
  }

 private:
  struct Guest {
    Connection connection;
    std::string from;
    Clock::time_point until = deadline_after(kPatienceS);
    Greeting greeting = {.nonce = random_bytes()};
    Hello hello = {};
    std::size_t filled = 0;
  };

  // Accepts a connection, after dropping the oldest guest if there is no room; false: none came.
  bool welcome() {
    Accepted accepted = accept_at(listener_);
    const bool has_come = accepted.connection.socket() >= 0;
    const bool has_no_room = !has_come && (errno == EMFILE || errno == ENFILE);
    if (has_no_room && guests_.empty())
      fail(fmt::format("no process can connect: {}", std::strerror(errno)));
    if (has_no_room || guests_.size() == kMostStrangers + members_.size()) {
      drop(guests_.front(), "too many connect at once");
      guests_.pop_front();
    }
    Guest guest{.connection = std::move(accepted.connection), .from = std::move(accepted.from)};
    if (has_come && guest.connection.write(bytes_of(guest.greeting), Clock::now())) {
      guests_.push_back(std::move(guest));
    }
    return has_come;
  }

  void listen_to(Guest& guest) {
    const auto n = guest.connection.read_some(room_of(guest.hello).subspan(guest.filled));
    if (!n) return drop(guest, "it went without a word");
    guest.filled += *n;
    const Heard heard =
        hear(bytes_of(guest.hello).first(guest.filled), guest.greeting, secret_, self_.count);
    if (!heard.problem.empty()) return drop(guest, heard.problem);
    if (heard.rank) admit(guest, *heard.rank);
  }

  void admit(Guest& guest, int rank) {
    Connection& member = members_[static_cast<std::size_t>(rank - 1)];
    if (member.socket() >= 0) fail(fmt::format("two processes are rank {}", rank));
    const Proof own = proof_of_first(guest.greeting, guest.hello, secret_);
    if (!guest.connection.write(bytes_of(own), Clock::now())) return drop(guest, "it went");
    member = std::move(guest.connection);
    ++come_;
  }

  void drop(Guest& guest, const std::string& why) {
    if (++strangers_ <= kMostLines) {
      log_warn("a connection from {} is no process of this run and was dropped: {}{}", guest.from,
               why, strangers_ < kMostLines ? "" : "; of more of them nothing is said");
    }
    guest.connection = {};
  }

  [[noreturn]] void fail_for_missing() const {
    const std::string others =
        strangers_ == 0 ? "" : fmt::format("; {} connections were no processes of it", strangers_);
    fail(fmt::format("{} of {} processes have come to {}:{}{}", come_, self_.count, self_.host,
                     self_.port, others),
         "start as many as WORLD_SIZE says, with the same secret");
  }

  const Launched& self_;
  const Secret& secret_;
  const Clock::time_point deadline_;
  const Connection listener_;
  std::deque<Guest> guests_;         // in the order in which they came
  std::vector<Connection> members_;  // by rank, from 1 on
  int come_ = 1;                     // with this one
  std::int64_t strangers_ = 0;
};

// Introduces this process; returns why the other end is not process 0 of this run, or "".
std::string introduce(const Connection& to, const Launched& self, const Secret& secret,
                      Clock::time_point deadline) {
  Greeting greeting;
  if (!to.read(room_of(greeting), std::min(deadline, deadline_after(kPatienceS)))) {
    return "it says nothing";
  }
  const auto hello = answer_to(greeting, secret, self.rank, self.count, random_bytes());
  if (!hello) return "it is another program or version";
  Proof proof{};
  // Process 0 may count this one in: only the end of all waiting may end this.
  if (!to.write(bytes_of(*hello), deadline) || !to.read(room_of(proof), deadline)) {
    return "it refuses this one: it has another secret, or is of another run";
  }
  if (!is_same(proof, proof_of_first(greeting, *hello, secret))) {
    return "it does not know the secret of this run";
  }
  return "";
}

Connection find_first(const Launched& self, const Secret& secret, Clock::time_point deadline) {
  std::string stranger;
  for (;;) {
    Connection out = connect_to(self.host, self.port, deadline);
    const bool is_there = out.socket() >= 0;
    if (is_there) {
      std::string problem = introduce(out, self, secret, deadline);
      if (problem.empty()) return out;
      if (stranger.empty()) {
        log_warn("[rank {}] what listens on {}:{} is not process 0 of this run: {}", self.rank,
                 self.host, self.port, problem);
      }
      stranger = std::move(problem);
    }
    if (Clock::now() > deadline) {
      fail(fmt::format("process 0 does not listen on {}:{}{}", self.host, self.port,
                       stranger.empty() ? "" : ", and what does is not of this run: " + stranger));
    }
    std::this_thread::sleep_for(is_there ? kUntilItIsAnother : kUntilItListens);
  }
}

void check_secret(const Launched& self, bool has_secret) {
  if (has_secret) return;
  if (!is_loopback(self.host)) {
    throw Error(
        ErrorCode::kUsage, std::string(env::kCommSecretFile.name),
        fmt::format("it is not set, and strangers could join the processes on {}", self.host),
        fmt::format("make a secret by {}, and set it to FILE for every process",
                    line_that_makes_secret("FILE")));
  }
  if (self.rank != 0) return;
  log_info("processes meet on {}:{} without a secret: every user of this machine could join",
           self.host, self.port);
}

}  // namespace

std::vector<Connection> meet(const Launched& self, const std::optional<Secret>& secret,
                             double timeout_s) {
  check_secret(self, secret.has_value());
  const Secret known = secret.value_or(Secret{});  // of zeros: the same steps, which prove nothing
  const Clock::time_point deadline = deadline_after(timeout_s);
  if (self.rank == 0) return Reception(self, known, deadline).wait_for_all();
  std::vector<Connection> out;
  out.push_back(find_first(self, known, deadline));
  return out;
}

}  // namespace tracestep
