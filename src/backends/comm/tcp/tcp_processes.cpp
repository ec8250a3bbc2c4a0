// A star: process 0 has a connection to each of the others. A message is a header and its bytes;
// the watching thread reads them all and queues those that carry data, for receive().
#include "backends/comm/tcp/tcp_processes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "backends/comm/tcp/connection.h"
#include "base/error.h"

namespace tracestep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPatience{1500};  // for whoever knows more of a failure
constexpr std::chrono::milliseconds kPulse{200};      // between signs of life
constexpr std::uint64_t kMostBytes = 4096;

enum class Kind : std::uint32_t { kData, kFailed, kEnd, kAlive };
struct Header {
  Kind kind = Kind::kData;
  std::int32_t status = 0;  // of a process that failed
  std::uint64_t bytes = 0;
};

class TcpProcesses final : public Processes {
 public:
  TcpProcesses(const Launched& self, double timeout_s)
      : self_(self), timeout_s_(timeout_s), peers_(connect_all(self, timeout_s)) {
    inbox_.resize(peers_.size());
    watcher_ = std::thread([this] { watch(); });
  }
  ~TcpProcesses() override {
    for (const Connection& peer : peers_) send(peer, {.kind = Kind::kEnd}, {});
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
      send_data(peers_[0], std::as_bytes(std::span(&own, 1)));
    } else {
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        receive(i, std::as_writable_bytes(std::span(&out[i + 1], 1)));
      }
    }
    for (std::uint64_t& value : out) broadcast(std::as_writable_bytes(std::span(&value, 1)));
    return out;
  }

  void broadcast(std::span<std::byte> bytes) override {
    TRACESTEP_CHECK(bytes.size() <= kMostBytes, "{} bytes", bytes.size());
    if (rank() != 0) return receive(0, bytes);
    for (const Connection& peer : peers_) send_data(peer, bytes);
  }

  void wait_for_first() override {
    std::array<std::byte, 1> sign{};
    rank() == 0 ? broadcast(sign) : receive(0, sign, Limit::kNone);
  }

  void end_all(const std::string& line, int status) override {
    if (rank() == 0) write_and_end(line, status);
    send(peers_[0], {Kind::kFailed, status, line.size()}, std::as_bytes(std::span(line)));
    std::this_thread::sleep_for(kPatience);
    write_and_end(line, status);
  }

 private:
  [[noreturn]] void write_and_end(const std::string& line, int status) {
    static std::atomic_flag is_written;
    if (!is_written.test_and_set()) {
      std::fputs((line + "\n").c_str(), stderr);
      for (const Connection& peer : peers_) send(peer, {Kind::kFailed, status, 0}, {});
    }
    std::_Exit(status);
  }

  // One message at a time on a connection. A peer that is gone is noticed by the watcher.
  void send(const Connection& peer, const Header& header, std::span<const std::byte> bytes) {
    const std::lock_guard lock(sending_);
    peer.write(std::as_bytes(std::span(&header, 1)));
    peer.write(bytes);
  }
  void send_data(const Connection& peer, std::span<const std::byte> bytes) {
    send(peer, {Kind::kData, 0, bytes.size()}, bytes);
  }

  enum class Limit { kTimeout, kNone };

  void receive(std::size_t peer, std::span<std::byte> bytes, Limit limit = Limit::kTimeout) {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return !inbox_[peer].empty(); };
    if (limit == Limit::kNone) {
      arrived_.wait(lock, is_there);
    } else if (!arrived_.wait_for(lock, std::chrono::duration<double>(timeout_s_), is_there)) {
      throw Error(ErrorCode::kFailed, fmt::format("rank {}", rank_of(peer)),
                  fmt::format("it told rank {} nothing within {:g} s", rank(), timeout_s_),
                  fmt::format("it hangs, or {} is too short", env::kCommTimeout.name));
    }
    const std::vector<std::byte> message = std::move(inbox_[peer].front());
    inbox_[peer].pop_front();
    TRACESTEP_CHECK(message.size() == bytes.size(), "{} bytes instead of {}", message.size(),
                    bytes.size());
    std::ranges::copy(message, bytes.begin());
  }

  int rank_of(std::size_t peer) const { return rank() == 0 ? static_cast<int>(peer) + 1 : 0; }

  // Reads messages until every peer has said that it is done. Each says now and then that it is
  // alive, so that one that is stopped, or whose host is gone, is noticed while the others wait for
  // their devices.
  void watch() {
    std::vector<bool> is_done(peers_.size(), false);
    std::vector<Clock::time_point> heard(peers_.size(), Clock::now());
    Clock::time_point said = Clock::now();
    for (std::size_t left = peers_.size(); left > 0;) {
      if (Clock::now() - said > kPulse) {
        said = Clock::now();
        for (const Connection& peer : peers_) send(peer, {.kind = Kind::kAlive}, {});
      }
      end_for_silence(is_done, heard);
      const std::size_t peer = wait_for_any(peers_, is_done, kPulse);
      if (peer == peers_.size()) continue;
      heard[peer] = Clock::now();
      Header header;
      if (!peers_[peer].read(std::as_writable_bytes(std::span(&header, 1)))) lost(peer);
      std::vector<std::byte> bytes(std::min(header.bytes, kMostBytes));
      if (!peers_[peer].read(bytes)) lost(peer);
      switch (header.kind) {
        case Kind::kAlive: break;
        case Kind::kEnd:
          is_done[peer] = true;
          --left;
          break;
        case Kind::kFailed:
          if (bytes.empty()) std::_Exit(header.status);  // the first one has said why
          write_and_end({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, header.status);
        case Kind::kData: {
          const std::lock_guard lock(mutex_);
          inbox_[peer].push_back(std::move(bytes));
          arrived_.notify_all();
        }
      }
    }
  }

  void end_for_silence(const std::vector<bool>& is_done,
                       const std::vector<Clock::time_point>& heard) {
    const Clock::duration limit =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      if (is_done[peer] || Clock::now() - heard[peer] < limit) continue;
      // Where the first process is silent, the second speaks first; the launcher then ends the
      // others.
      std::this_thread::sleep_for(kPatience * std::max(0, rank() - 1));
      write_and_end(fmt::format("tracestep: [rank {}] it gave no sign of life for {:g} s",
                                rank_of(peer), timeout_s_),
                    exit_code(ErrorCode::kFailed));
    }
  }

  // The launcher, if it is still there, knows better what happened, and ends this process.
  [[noreturn]] void lost(std::size_t peer) {
    std::this_thread::sleep_for(kPatience);
    write_and_end(fmt::format("tracestep: [rank {}] it ended without a word", rank_of(peer)),
                  exit_code(ErrorCode::kFailed));
  }

  const Launched self_;
  const double timeout_s_;
  const std::vector<Connection> peers_;  // process 0: all others, in their order; others: that one
  std::mutex sending_, mutex_;
  std::condition_variable arrived_;
  std::vector<std::deque<std::vector<std::byte>>> inbox_;  // by peer
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<Processes> join_tcp(const Launched& self, double timeout_s) {
  return std::make_unique<TcpProcesses>(self, timeout_s);
}

}  // namespace tracestep
