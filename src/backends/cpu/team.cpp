#include "backends/cpu/team.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/cores.h"

namespace tracestep::cpu {
namespace {

// Times are in ticks of the processor's counter, of which a microsecond has two to four thousand:
// reading it costs a tenth of reading a clock, and nothing here has to be exact.
using Ticks = std::int64_t;  // as in team.h

Ticks now() {
#ifdef __x86_64__
  return static_cast<Ticks>(__builtin_ia32_rdtsc());
#else
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return 3 * std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
#endif
}

constexpr Ticks kMicrosecond = 3'000;
// Work shorter than kWorthSharing is done before another core has its first chunk; work shorter
// than kWorthWaking is done before a thread that sleeps is awake.
constexpr Ticks kWorthSharing = 6 * kMicrosecond, kWorthWaking = 40 * kMicrosecond;
// How long a helper looks for work before it sleeps: longer than from one op of a step to the next.
constexpr Ticks kSpin = 200 * kMicrosecond;
// How long a master waits for the chunks of others before it sleeps; longer with many helpers, one
// of which is often on a slow core, while waking up takes longer than a small op of a step.
constexpr Ticks kWait = 20 * kMicrosecond, kWaitForMany = 200 * kMicrosecond;
constexpr int kMany = 4;  // threads
// How long sharing goes on until it is judged, and for how long it rests if it did not pay.
constexpr Ticks kJudged = 3'000 * kMicrosecond;
constexpr Ticks kLeastRest = 20'000 * kMicrosecond, kMostRest = 1'000'000 * kMicrosecond;

thread_local bool is_inside = false;  // a chunk

void pause() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Spins until done(), for `ticks` at most; true if done.
template <class Done>
bool spin(Ticks ticks, const Done& done) {
  for (const Ticks end = now() + ticks; now() < end; pause()) {
    if (done()) return true;
  }
  return done();
}

// Keeps the exception of the lowest chunk, so that a message does not depend on the threads either.
class FirstError {
 public:
  void capture(std::int64_t chunk) {
    const std::lock_guard lock(mutex_);
    if (chunk >= chunk_) return;
    chunk_ = chunk;
    error_ = std::current_exception();
  }
  void rethrow() {
    if (chunk_ == kNone) return;
    chunk_ = kNone;
    std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::mutex mutex_;
  std::int64_t chunk_ = kNone;
  std::exception_ptr error_;
};

}  // namespace

// Holds the work that the master has published. A ticket says which job it is (upper half) and how
// many of its chunks are not taken yet (lower half). The thread that replaces a ticket by the next
// has that chunk; the master changes the other members only when all chunks are done, so what was
// read before the exchange belongs to the chunk.
struct Team::Job {
  alignas(64) std::atomic<std::uint64_t> ticket = 0;
  std::atomic<ChunkBody> body = nullptr;
  std::atomic<const void*> context = nullptr;
  std::atomic<std::int64_t> chunks = 0;
  std::atomic<int> threads = 0, core = -1;  // the master's, when it published
  alignas(64) std::atomic<std::uint32_t> unfinished = 0;
  alignas(64) std::atomic<std::uint32_t> calls = 0;  // another one: who sleeps shall look
  std::atomic<int> asleep = 0;
  std::atomic<bool> ends = false;
  FirstError error;

  static std::uint32_t left(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket); }
  static std::uint64_t number(std::uint64_t ticket) { return ticket >> 32; }

  void publish(int of_threads, std::int64_t from, std::int64_t count, ChunkBody run,
               const void* with) {
    threads.store(of_threads, std::memory_order_relaxed);
    core.store(::sched_getcpu(), std::memory_order_relaxed);
    chunks.store(count, std::memory_order_relaxed);
    body.store(run, std::memory_order_relaxed);
    context.store(with, std::memory_order_relaxed);
    const auto rest = static_cast<std::uint32_t>(count - from);
    unfinished.store(rest, std::memory_order_relaxed);
    const std::uint64_t next = number(ticket.load(std::memory_order_relaxed)) + 1;
    ticket.store(next << 32 | rest, std::memory_order_seq_cst);
  }

  void wake(std::int64_t helpers) {
    const std::int64_t sleeping = asleep.load(std::memory_order_seq_cst);
    if (sleeping == 0) return;
    calls.fetch_add(1);
    if (helpers >= sleeping) return calls.notify_all();
    for (; helpers > 0; --helpers) calls.notify_one();
  }

  // Takes chunks until none is left; returns how many.
  std::int64_t work(int thread) {
    is_inside = true;
    std::int64_t taken = 0;
    std::uint64_t current = ticket.load(std::memory_order_acquire);
    while (left(current) > 0 && thread < threads.load(std::memory_order_relaxed)) {
      const ChunkBody run = body.load(std::memory_order_relaxed);
      const void* with = context.load(std::memory_order_relaxed);
      const std::int64_t chunk = chunks.load(std::memory_order_relaxed) - left(current);
      if (!ticket.compare_exchange_weak(current, current - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      try {
        run(with, chunk, thread);
      } catch (...) {
        error.capture(chunk);
      }
      ++taken;
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
      current = ticket.load(std::memory_order_acquire);
    }
    is_inside = false;
    return taken;
  }

  // Waits until the chunks that others hold are done.
  void wait() {
    const auto left_over = [&] { return unfinished.load(std::memory_order_acquire); };
    const Ticks most = threads.load(std::memory_order_relaxed) < kMany ? kWait : kWaitForMany;
    if (spin(most, [&] { return left_over() == 0; })) return;
    for (std::uint32_t n = left_over(); n != 0; n = left_over()) unfinished.wait(n);
  }

  // Leaves the master's core: a thread that wakes may be put on it while the master is at work, and
  // both then stay there for long, although another core is idle.
  void leave_core_of_master() {
    const int here = ::sched_getcpu();
    if (here != core.load(std::memory_order_relaxed)) return;
    cpu_set_t others;
    CPU_ZERO(&others);
    for (const int id : allowed_core_numbers()) {
      if (id != here) CPU_SET(id, &others);
    }
    if (CPU_COUNT(&others) > 0) ::sched_setaffinity(0, sizeof others, &others);
  }

  void help(int thread) {
    std::uint64_t seen = 0;
    const auto is_called = [&] {
      const std::uint64_t current = ticket.load(std::memory_order_seq_cst);
      return (number(current) != seen && left(current) > 0) || ends;
    };
    while (true) {
      if (!spin(kSpin, is_called)) {
        asleep.fetch_add(1, std::memory_order_seq_cst);
        for (std::uint32_t call = calls.load(); !is_called(); call = calls.load()) {
          calls.wait(call);
        }
        asleep.fetch_sub(1, std::memory_order_relaxed);
      }
      if (ends) return;
      seen = number(ticket.load(std::memory_order_acquire));
      leave_core_of_master();
      work(thread);
    }
  }
};

Team& Team::of_this_thread() {
  thread_local Team team;
  return team;
}

Team::Team() : job_{std::make_unique<Job>()}, process_{::getpid()} {}

Team::~Team() {
  if (process_ != ::getpid()) {  // in a child of fork() these threads are not there
    for (std::thread& helper : helpers_) helper.detach();
    return;
  }
  job_->ends = true;
  job_->wake(static_cast<std::int64_t>(helpers_.size()));
  for (std::thread& helper : helpers_) helper.join();
}

void Team::start_helpers(int count) {
  try {
    while (static_cast<int>(helpers_.size()) < count) {
      const int thread = static_cast<int>(helpers_.size()) + 1;
      helpers_.emplace_back([job = job_.get(), thread] { job->help(thread); });
    }
  } catch (const std::system_error&) {
    // As many as there are.
  }
}

std::size_t Team::class_of(Ticks ticks) {
  std::size_t out = 0;
  for (const Ticks most : {20, 100, 1'000}) out += ticks >= most * kMicrosecond ? 1 : 0;
  return out;
}

void Team::Gain::judge(Ticks of_all, Ticks start, Ticks end) {
  alone += of_all;
  shared += end - start;
  if (shared < kJudged) return;
  const bool pays = alone > shared + shared / 10;
  rest = pays ? 0 : std::clamp(2 * rest, kLeastRest, kMostRest);
  rests_until = end + rest;
  alone = shared = 0;
}

Team::Cost& Team::cost_of(ChunkBody body, std::int64_t chunks) {
  const std::size_t place = reinterpret_cast<std::size_t>(body) / 16 * 31 + chunks;
  Cost& cost = costs_[place % costs_.size()];
  if (cost.body != body || cost.chunks != chunks) cost = {body, chunks, kUnknown};
  return cost;
}

void Team::run(int threads, std::int64_t chunks, ChunkBody body, const void* context) {
  if (threads <= 1 || chunks <= 1 || is_inside) {
    for (std::int64_t i = 0; i < chunks; ++i) body(context, i, 0);
    return;
  }
  const Ticks start = now();
  Cost& cost = cost_of(body, chunks);
  Gain& gain = gains_[class_of(cost.ticks)];
  const bool rests = start < gain.rests_until;
  std::int64_t done = 0;
  if (cost.ticks < kWorthSharing || rests) {
    Ticks taken = 0;
    while (done < chunks && (rests || taken < 2 * kWorthSharing)) {
      body(context, done++, 0);
      taken = now() - start;
    }
    if (done == chunks) {
      cost.ticks = taken;
      return;
    }
  }
  start_helpers(threads - 1);
  job_->publish(threads, done, chunks, body, context);
  bool is_helped = job_->asleep.load(std::memory_order_seq_cst) == 0;
  if (!is_helped) {  // woken for much work, or for a row of little
    owed_ += done > 0 ? kWorthWaking : std::min(cost.ticks, kWorthWaking);
    is_helped = owed_ >= kWorthWaking;
  }
  if (is_helped) {  // by no more than have enough to do
    job_->wake(std::min(chunks - done, 1 + cost.ticks / kWorthWaking));
    owed_ = 0;
  }
  done += job_->work(0);
  const Ticks worked = now() - start;
  job_->wait();
  if (done > 0) {
    const Ticks of_all = worked / done * chunks;
    if (is_helped) gain.judge(of_all, start, now());
    // Another shape may have as many chunks: what is long is not forgotten at once.
    const Ticks before = cost.ticks == kUnknown ? 0 : cost.ticks;
    cost.ticks = std::max(of_all, before / 4 * 3);
  }
  job_->error.rethrow();
}

}  // namespace tracestep::cpu
