// How work is shared by threads (team.h). Every chunk of work writes its own results, and where its
// size could change a bit it follows from the shape, never from the number of threads: neither that
// number nor which thread runs which chunk can change one.
#pragma once

#include <cstdint>

#include "runtime/kernel.h"

namespace tracestep::cpu {

// What Device::stream() points to on a CPU device.
struct CpuThreads {
  int count = 1;
};

// Returns the number of threads that share the work of this stream; without a stream, the number of
// allowed cores.
int threads_of(const void* stream);
inline int threads_of(const KernelCall& call) {
  return threads_of(call.stream);
}
inline int threads_of(const LaunchContext& context) {
  return threads_of(context.stream);
}

// Checks that `threads` threads can be started, because a team would silently continue with fewer:
// all are started once and ended again. Costs tens of µs per thread, once per process and number.
// Throws Error{kFailed} with the number that could be started.
void require_threads(int threads);

using ChunkBody = void (*)(const void* context, std::int64_t chunk, int thread);

// Calls body(context, chunk, thread) once for every chunk < chunks, on up to `threads` threads,
// each taking the next chunk when it is free; thread < threads. Rethrows the exception of the
// lowest chunk that threw one.
void run_chunks(int threads, std::int64_t chunks, ChunkBody body, const void* context);

}  // namespace tracestep::cpu
