// The functions of NCCL that are used, as the library's interface documents them, and one of the
// CUDA driver. Handles are pointers, and every function returns 0 for success.
#pragma once

#include <cstddef>
#include <string>

namespace tracestep::nccl {

struct UniqueId {
  char bytes[128];
};
struct Comm;  // the library's
using Stream = void*;

inline constexpr int kSum = 0;
inline constexpr int kUint8 = 1, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBFloat16 = 9;

struct Library {
  std::string problem;  // Why the library cannot be used; empty: it can.

  int (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*comm_init_rank)(Comm**, int ranks, UniqueId, int rank) = nullptr;
  // Splits a communicator; with `config` nullptr the new one has the old one's configuration.
  int (*comm_split)(Comm*, int color, int key, Comm**, void* config) = nullptr;
  int (*comm_destroy)(Comm*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t count, int type, int op, Comm*,
                    Stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t part_count, int type, int op, Comm*,
                        Stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t part_count, int type, Comm*, Stream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t count, int type, int op, int root, Comm*,
                Stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t count, int type, int root, Comm*,
                   Stream) = nullptr;
  // The driver's cuMemsetD8Async(): sets bytes of the device's memory, on a stream.
  int (*memset)(unsigned long long address, unsigned char value, std::size_t bytes,
                Stream) = nullptr;
};

// Returns the library, which is loaded at the first call and never unloaded.
const Library& library();

}  // namespace tracestep::nccl
