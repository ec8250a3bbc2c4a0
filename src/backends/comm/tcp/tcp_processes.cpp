// The connections form a star: process 0 has one to each of the others. A watching thread reads all
// messages (messages.h) and queues those that carry data for receive().
#include "backends/comm/tcp/tcp_processes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>

#include "backends/comm/tcp/connection.h"
#include "backends/comm/tcp/messages.h"
#include "base/error.h"
#include "base/utf8.h"
#include "runtime/rank_error.h"

namespace tracestep {
namespace {

constexpr std::chrono::milliseconds kPatience{1500};  // for whoever knows more of a failure
constexpr std::chrono::milliseconds kPulse{200};      // between signs of life
constexpr std::size_t kMostBroadcastBytes = 4096;
// The most messages of a peer that may wait for receive(). Processes make the same calls in the
// same order and wait for each other in every exchange(), so that no peer is more than a few ahead.
constexpr std::size_t kMostWaiting = 16;

struct Peer {
  Connection connection;
  MessageReader reader;
  Clock::time_point heard = Clock::now();
  bool is_done = false;
  std::deque<std::vector<std::byte>> inbox = {};  // guarded by mutex_
};

class TcpProcesses final : public Processes {
 public:
  TcpProcesses(const Launched& self, const std::optional<Secret>& secret, double timeout_s)
      : self_(self), timeout_s_(timeout_s) {
    const auto count = static_cast<std::size_t>(self.count);
    for (Connection& connection : meet(self, secret, timeout_s)) {
      const std::string name = fmt::format("rank {}", rank_of(peers_.size()));
      peers_.push_back(
          {std::move(connection), MessageReader(name, std::max(kMostBroadcastBytes, 8 * count))});
    }
    watcher_ = std::thread([this] { watch(); });
  }
  ~TcpProcesses() override {
    tell_all({.kind = MessageKind::kEnd});
    if (rank() == 0) others_end_by_ = deadline_after(timeout_s_);  // nothing is left for them to do
    watcher_.join();
  }
  TcpProcesses(const TcpProcesses&) = delete;
  TcpProcesses& operator=(const TcpProcesses&) = delete;

  int rank() const override { return self_.rank; }
  int count() const override { return self_.count; }
  int local_rank() const override { return self_.local_rank; }

  std::vector<std::uint64_t> exchange(std::uint64_t own) override {
    std::vector<std::uint64_t> out(static_cast<std::size_t>(count()), own);
    if (rank() != 0) {
      tell_all({MessageKind::kData, 0, sizeof own}, std::as_bytes(std::span(&own, 1)));
    } else {
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        receive(i, std::as_writable_bytes(std::span(&out[i + 1], 1)));
      }
    }
    share(std::as_writable_bytes(std::span(out)), Limit::kTimeout);
    return out;
  }

  void broadcast(std::span<std::byte> bytes) override {
    TRACESTEP_CHECK(bytes.size() <= kMostBroadcastBytes, "{} bytes", bytes.size());
    share(bytes, Limit::kTimeout);
  }

  void wait_for_first() override {
    std::array<std::byte, 1> sign{};
    share(sign, Limit::kNone);
  }

  void end_all(const std::string& line, int status) override {
    if (rank() == 0) write_and_end(line, status);
    const std::string text = message_line(line, kMostTextBytes);
    tell_all({MessageKind::kFailed, status, text.size()}, std::as_bytes(std::span(text)));
    std::this_thread::sleep_for(kPatience);
    write_and_end(line, status);
  }

 private:
  enum class Limit { kTimeout, kNone };

  // Writes the line, tells the peers, ends the process. A second caller waits in lock() till then.
  [[noreturn]] void write_and_end(const std::string& line, int status) {
    ending_.lock();
    std::fputs((message_line(line) + "\n").c_str(), stderr);
    tell_all({MessageKind::kFailed, status, 0});
    std::_Exit(status);
  }

  // Sends a message to each peer, one after the other. The watcher notices a peer that is gone.
  void tell_all(const MessageHeader& header, std::span<const std::byte> bytes = {}) {
    const std::lock_guard lock(sending_);
    const Clock::time_point deadline = deadline_after(timeout_s_);
    for (const Peer& peer : peers_) {
      if (peer.connection.write(std::as_bytes(std::span(&header, 1)), deadline)) {
        peer.connection.write(bytes, deadline);
      }
    }
  }

  // Copies the bytes of process 0 to all others: process 0 sends them, the others receive them.
  void share(std::span<std::byte> bytes, Limit limit) {
    if (rank() != 0) return receive(0, bytes, limit);
    tell_all({MessageKind::kData, 0, bytes.size()}, bytes);
  }

  void receive(std::size_t peer, std::span<std::byte> bytes, Limit limit = Limit::kTimeout) {
    std::unique_lock lock(mutex_);
    auto& inbox = peers_[peer].inbox;
    const auto is_there = [&] { return !inbox.empty(); };
    if (limit == Limit::kNone) {
      arrived_.wait(lock, is_there);
    } else if (!arrived_.wait_for(lock, std::chrono::duration<double>(timeout_s_), is_there)) {
      throw RankError(rank_of(peer),
                      fmt::format("it told rank {} nothing within {:g} s", rank(), timeout_s_),
                      fmt::format("it hangs, or {} is too short", env::kCommTimeout.name));
    }
    const std::vector<std::byte> message = std::move(inbox.front());
    inbox.pop_front();
    if (message.size() != bytes.size()) {
      throw RankError(rank_of(peer), sent_instead(message.size(), bytes.size()), kForeign);
    }
    std::ranges::copy(message, bytes.begin());
  }

  int rank_of(std::size_t peer) const { return rank() == 0 ? static_cast<int>(peer) + 1 : 0; }

  // Reads messages until every peer has said that it is done. Each sends a sign of life now and
  // then, so that a peer that is stopped, or whose host is gone, is noticed while the others wait
  // for their devices.
  void watch() {
    Clock::time_point next_pulse = Clock::now();
    while (!std::ranges::all_of(peers_, &Peer::is_done)) {
      if (Clock::now() >= next_pulse) {
        tell_all({.kind = MessageKind::kAlive});
        next_pulse = Clock::now() + kPulse;
      }
      end_for_silence();
      std::vector<int> sockets;
      for (const Peer& peer : peers_) {
        sockets.push_back(peer.is_done ? -1 : peer.connection.socket());
      }
      const std::vector<bool> ready = wait_for_any(sockets, next_pulse);
      for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
        if (ready[peer]) read_from(peer);
      }
    }
  }

  void read_from(std::size_t index) {
    Peer& peer = peers_[index];
    const auto bytes = peer.connection.read_some(peer.reader.room());
    if (!bytes) lost(index);
    try {
      auto message = peer.reader.take(*bytes);
      if (!message) return;  // a byte now and then is no sign of life
      peer.heard = Clock::now();
      act_on(index, std::move(*message));
    } catch (const Error& error) {
      write_and_end(fmt::format("tracestep: {}", error.what()), exit_code(error.code()));
    }
  }

  void act_on(std::size_t index, Message message) {
    Peer& peer = peers_[index];
    switch (message.header.kind) {
      case MessageKind::kAlive: return;
      case MessageKind::kEnd: peer.is_done = true; return;
      case MessageKind::kFailed: end_with(index, message);
      case MessageKind::kData: break;
    }
    const std::lock_guard lock(mutex_);
    if (peer.inbox.size() == kMostWaiting) {
      throw RankError(rank_of(index),
                      fmt::format("it sent {} messages that nobody waits for", kMostWaiting + 1),
                      kForeign);
    }
    peer.inbox.push_back(std::move(message.bytes));
    arrived_.notify_all();
  }

  [[noreturn]] void end_with(std::size_t peer, const Message& message) {
    const int status = status_of_failure(message.header.status);
    if (!message.bytes.empty()) {
      std::string text(reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size());
      // Lines of this program name the rank that they come from; other texts do not.
      if (!text.starts_with("tracestep: ")) {
        text = fmt::format("tracestep: [rank {}] it failed: {}", rank_of(peer), text);
      }
      write_and_end(text, status);
    }
    if (rank() != 0) std::_Exit(status);  // the first one has said why
    write_and_end(fmt::format("tracestep: [rank {}] it failed", rank_of(peer)), status);
  }

  void end_for_silence() {
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      const std::chrono::duration<double> silence = Clock::now() - peers_[peer].heard;
      if (peers_[peer].is_done) continue;
      if (Clock::now() > others_end_by_.load()) {
        write_and_end(fmt::format("tracestep: [rank {}] it did not end within {:g} s of rank 0",
                                  rank_of(peer), timeout_s_),
                      exit_code(ErrorCode::kFailed));
      }
      if (silence.count() < timeout_s_) continue;
      // Where the first process is silent, the second speaks first; the launcher then ends the
      // others.
      std::this_thread::sleep_for(kPatience * std::max(0, rank() - 1));
      write_and_end(fmt::format("tracestep: [rank {}] it gave no sign of life for {:g} s",
                                rank_of(peer), timeout_s_),
                    exit_code(ErrorCode::kFailed));
    }
  }

  // Ends the run because a peer is gone, unless a launcher that knows why does so during a pause.
  [[noreturn]] void lost(std::size_t peer) {
    std::this_thread::sleep_for(kPatience);
    write_and_end(fmt::format("tracestep: [rank {}] it ended without a word", rank_of(peer)),
                  exit_code(ErrorCode::kFailed));
  }

  const Launched self_;
  const double timeout_s_;
  std::vector<Peer> peers_;  // process 0: all others, in their order; others: that one
  std::mutex sending_, ending_, mutex_;
  std::condition_variable arrived_;
  std::atomic<Clock::time_point> others_end_by_{Clock::time_point::max()};
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<Processes> join_tcp(const Launched& self, const std::optional<Secret>& secret,
                                    double timeout_s) {
  return std::make_unique<TcpProcesses>(self, secret, timeout_s);
}

}  // namespace tracestep
