#include "backends/comm/mpi/mpi_world.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

#include "backends/comm/launch/launched.h"
#include "base/error.h"
#include "runtime/rank_error.h"

namespace tracestep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr int kTag = 1;
constexpr int kSpins = 200;  // then the core is given up between looks
constexpr std::chrono::microseconds kNap = 50us;
// How long a failing rank other than 0 waits for rank 0 to write its failure before it writes that
// itself: kPatience, plus its rank times kPatienceOfEach, so that ranks do not write together.
constexpr std::chrono::milliseconds kPatience{2000}, kPatienceOfEach{300};
// The shortest time limit for MPI's start and end, which take longer than a collective.
constexpr double kShortestLimit_s = 10.0;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  throw Error(ErrorCode::kFailed, "MPI", fmt::format("{} failed with status {}", call, status));
}

// Ends this process, and so the job, if MPI's start or end takes too long, for which MPI itself
// waits without limit. Ranks other than 0 wait longer, so that rank 0 writes the message first.
class TimeLimit {
 public:
  TimeLimit(double timeout_s, const char* what)
      : thread_([limit_s = std::max(timeout_s, kShortestLimit_s),
                 what](const std::stop_token& stop) {
          const int rank = launched() ? launched()->rank : 0;
          const auto patience = rank == 0 ? 0ms : kPatience + rank * kPatienceOfEach;
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any().wait_for(
              lock, stop, std::chrono::duration<double>(limit_s) + patience, [] { return false; });
          if (stop.stop_requested()) return;
          const std::string line =
              fmt::format("tracestep: [MPI] another process did not come to its {} within {:g} s\n",
                          what, limit_s);
          std::fputs(line.c_str(), stderr);
          std::_Exit(exit_code(ErrorCode::kFailed));
        }) {}

 private:
  std::jthread thread_;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

MpiWorld::MpiWorld(double timeout_s) : timeout_s_(timeout_s) {
  const TimeLimit limit(timeout_s_, "start");
  int provided = MPI_THREAD_SINGLE;
  // Another thread calls MPI only while the first one is held in a driver (WaitWatch).
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &count_);
  check(MPI_Comm_dup(MPI_COMM_WORLD, &data_), "MPI_Comm_dup");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &failures_), "MPI_Comm_dup");
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  MPI_Comm_rank(host, &local_rank_);
  MPI_Comm_free(&host);
}

MpiWorld::~MpiWorld() {
  const TimeLimit limit(timeout_s_, "end");
  MPI_Comm_free(&failures_);
  MPI_Comm_free(&data_);
  MPI_Finalize();
}

std::vector<std::uint64_t> MpiWorld::exchange(std::uint64_t own) {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(count_), own);
  Messages messages(*this, "an exchange");
  for (int other = 0; other < count_; ++other) {
    if (other == rank_) continue;
    messages.receive(&out[static_cast<std::size_t>(other)], sizeof own, other);
    messages.send(&own, sizeof own, other);
  }
  messages.wait();
  return out;
}

void MpiWorld::broadcast(std::span<std::byte> bytes) {
  Messages messages(*this, "a broadcast");
  if (rank_ != 0) messages.receive(bytes.data(), bytes.size(), 0);
  for (int other = 1; rank_ == 0 && other < count_; ++other) {
    messages.send(bytes.data(), bytes.size(), other);
  }
  messages.wait();
}

void MpiWorld::wait_for_first() {
  Messages messages(*this, "a wait");
  std::byte sign{};
  if (rank_ != 0) messages.receive(&sign, sizeof sign, 0);
  for (int other = 1; rank_ == 0 && other < count_; ++other) {
    messages.send(&sign, sizeof sign, other);
  }
  messages.wait(rank_ == 0 ? timeout_s_ : std::numeric_limits<double>::infinity());
}

void MpiWorld::write_and_abort(const std::string& line, int status) {
  std::fputs((line + "\n").c_str(), stderr);
  std::fflush(stderr);
  // Where the launcher's host is out of reach, MPI_Abort waits for it without end.
  try {
    std::thread([status] {
      std::this_thread::sleep_for(kPatience);
      std::_Exit(status);
    }).detach();
  } catch (const std::system_error&) {  // no more threads
  }
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

// Sends rank 0 the line, with the status as the message's tag, and ends the job if rank 0 does not.
void MpiWorld::end_all(const std::string& line, int status) {
  if (rank_ == 0) write_and_abort(line, status);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(line.data(), static_cast<int>(line.size()), MPI_CHAR, 0, status, failures_, &request);
  const auto start = Clock::now();
  while (Clock::now() - start < kPatience + rank_ * kPatienceOfEach) {
    int done = 0;  // looking is what moves the message
    if (request != MPI_REQUEST_NULL) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  write_and_abort(line, status);
}

void MpiWorld::show_failure_of_another() {
  if (rank_ != 0) return;
  int is_there = 0, size = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, failures_, &is_there, &status);
  if (is_there == 0) return;
  MPI_Get_count(&status, MPI_CHAR, &size);
  std::string line(static_cast<std::size_t>(size), ' ');
  MPI_Recv(line.data(), size, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, failures_,
           MPI_STATUS_IGNORE);
  write_and_abort(line, status.MPI_TAG);
}

void MpiWorld::Messages::send(const void* bytes, std::size_t count, int to) {
  requests_.push_back(MPI_REQUEST_NULL);
  others_.push_back(to);
  check(MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, to, kTag, world_.data_,
                  &requests_.back()),
        "MPI_Isend");
}

void MpiWorld::Messages::receive(void* bytes, std::size_t count, int from) {
  requests_.push_back(MPI_REQUEST_NULL);
  others_.push_back(from);
  check(MPI_Irecv(bytes, static_cast<int>(count), MPI_BYTE, from, kTag, world_.data_,
                  &requests_.back()),
        "MPI_Irecv");
}

void MpiWorld::Messages::wait(double limit_s) {
  const auto start = Clock::now();
  for (int looks = 0;; ++looks) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (done != 0) break;
    if (looks < kSpins) continue;
    world_.show_failure_of_another();
    std::this_thread::sleep_for(kNap);
    if (seconds_since(start) < limit_s) continue;
    // Testall completes none while one is late: look for the first that is.
    std::size_t late = 0;
    for (; late + 1 < requests_.size(); ++late) {
      int flag = 0;
      MPI_Test(&requests_[late], &flag, MPI_STATUS_IGNORE);
      if (flag == 0) break;
    }
    throw RankError(
        others_[late],
        fmt::format("it did not come to {} of rank {} within {:g} s", what_, world_.rank_, limit_s),
        fmt::format("it hangs, or {} is too short", env::kCommTimeout.name));
  }
  requests_.clear();
  others_.clear();
}

}  // namespace tracestep
