// Both processes issue the same order on a stream: wait until the other one has taken what was sent
// before; send it its half of the operand; add the half that came; send the sum; take the sum that
// came. A flag in the receiver's memory says that something is there. The receiver clears it, so
// that a replayed graph finds it as the first run did.
#include "backends/comm/nccl/peer_copies.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "backends/comm/nccl/nccl_library.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace tracestep {
namespace {

using Address = std::uint64_t;
using nccl::Stream;

constexpr std::size_t kRoomBytes = std::size_t{64} << 20;  // for what is sent at once
constexpr std::size_t kFlagBytes = 4096, kFlagStride = 256;
constexpr std::size_t kLeastBytes = 16 << 10;
constexpr std::size_t kAlignment = 256;

// A flag tells this to the process in whose memory it lies; kOne holds the 1 that flags of the
// other process are set to.
enum Flag : std::size_t { kMaySend, kOperandIsThere, kSumIsThere, kOne, kFlags };

// As the driver's interface documents them.
struct IpcHandle {
  std::array<std::uint64_t, 8> words{};
};
struct MemOp {
  std::uint32_t operation = 0, padding = 0;
  Address address = 0;
  std::uint64_t value = 0;
  std::uint32_t flags = 0, more_padding = 0;
  Address alias = 0;
  std::uint64_t rest = 0;
};
static_assert(sizeof(MemOp) == 48);
constexpr std::uint32_t kWaitValue32 = 1, kWriteValue32 = 2, kWaitEqual = 1;
constexpr unsigned kEnablePeerAccess = 1;

struct Driver {
  int (*allocate)(Address*, std::size_t) = nullptr;
  int (*free)(Address) = nullptr;
  int (*get_handle)(IpcHandle*, Address) = nullptr;
  int (*open_handle)(Address*, IpcHandle, unsigned flags) = nullptr;
  int (*close_handle)(Address) = nullptr;
  int (*set)(Address, unsigned value, std::size_t count) = nullptr;
  int (*copy)(Address to, Address from, std::size_t bytes, Stream) = nullptr;
  int (*operate)(Stream, unsigned count, MemOp*, unsigned flags) = nullptr;
  bool is_whole = true;
};

const Driver& driver() {
  static const Driver loaded = [] {
    Driver out;
    void* const library = open_shared_library("libcuda.so.1");
    const auto find = [&](auto& function, const char* name) {
      void* const address = library == nullptr ? nullptr : ::dlsym(library, name);
      out.is_whole = out.is_whole && address != nullptr;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    };
    find(out.allocate, "cuMemAlloc_v2");
    find(out.free, "cuMemFree_v2");
    find(out.get_handle, "cuIpcGetMemHandle");
    find(out.open_handle, "cuIpcOpenMemHandle_v2");
    find(out.close_handle, "cuIpcCloseMemHandle");
    find(out.set, "cuMemsetD32_v2");
    find(out.copy, "cuMemcpyDtoDAsync_v2");
    find(out.operate, "cuStreamBatchMemOp_v2");
    return out;
  }();
  return loaded;
}

void check(int status, const char* call) {
  if (status != 0) throw DeviceError("cuda", call, fmt::format("error {}", status));
}

// Memory of this process and of the other one: room for an operand, room for a sum, the flags.
struct Shared {
  Address own = 0, other = 0;

  static constexpr std::size_t kBytes = 2 * kRoomBytes + kFlagBytes;
  static Address operand_in(Address base) { return base; }
  static Address sum_in(Address base) { return base + kRoomBytes; }
  static Address flag_in(Address base, Flag flag) {
    return base + 2 * kRoomBytes + flag * kFlagStride;
  }

  void release() const {
    if (other != 0) driver().close_handle(other);
    if (own != 0) driver().free(own);
  }
};

class Copies final : public PeerCopies {
 public:
  Copies(const Shared& shared, int rank, SumOnStream sum)
      : shared_(shared), rank_(rank), sum_(std::move(sum)) {}
  ~Copies() override { shared_.release(); }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  bool takes(const TensorRef& x) const override {
    const std::size_t bytes = static_cast<std::size_t>(x.count()) * size_of(x.dtype);
    const bool is_summed =
        x.dtype == DType::kF32 || x.dtype == DType::kBF16 || x.dtype == DType::kF16;
    return is_summed && bytes >= kLeastBytes && bytes % (2 * kAlignment) == 0;
  }

  void all_reduce(std::span<const PeerSum> sums, void* stream) override {
    std::size_t used = 0;
    for (const PeerSum& s : sums) {
      const std::size_t half = static_cast<std::size_t>(s.x.count()) * size_of(s.x.dtype) / 2;
      for (std::size_t done = 0; done < half;) {
        const std::size_t bytes = std::min(half - done, kRoomBytes - used);
        pieces_.push_back(piece(s, half, done, bytes, used));
        done += bytes;
        used += bytes;
        if (used == kRoomBytes) {
          exchange(stream);
          used = 0;
        }
      }
    }
    if (used > 0) exchange(stream);
  }

 private:
  // Parts of this process's half and of the other one's, and where they are in the rooms.
  struct Piece {
    Address x_own, x_other, y_own, y_other;
    std::size_t bytes, place;
    DType dtype;
  };

  Piece piece(const PeerSum& s, std::size_t half, std::size_t done, std::size_t bytes,
              std::size_t place) const {
    const auto at = [](const TensorRef& t) { return std::bit_cast<Address>(t.data); };
    const std::size_t own = static_cast<std::size_t>(rank_) * half + done,
                      other = static_cast<std::size_t>(1 - rank_) * half + done;
    return {at(s.x) + own, at(s.x) + other, at(s.y) + own, at(s.y) + other,
            bytes,         place,           s.x.dtype};
  }

  void exchange(Stream stream) {
    const Address own = shared_.own, other = shared_.other;
    wait_and_clear(kMaySend, stream);
    for (const Piece& p : pieces_)
      copy(Shared::operand_in(other) + p.place, p.x_other, p.bytes, stream);
    say(kOperandIsThere, stream);
    wait_and_clear(kOperandIsThere, stream);
    for (const Piece& p : pieces_) {
      sum_(pointer(p.y_own), pointer(p.x_own), pointer(Shared::operand_in(own) + p.place),
           static_cast<std::int64_t>(p.bytes / size_of(p.dtype)), p.dtype, stream);
      copy(Shared::sum_in(other) + p.place, p.y_own, p.bytes, stream);
    }
    say(kSumIsThere, stream);
    wait_and_clear(kSumIsThere, stream);
    for (const Piece& p : pieces_) copy(p.y_other, Shared::sum_in(own) + p.place, p.bytes, stream);
    say(kMaySend, stream);
    pieces_.clear();
  }

  static void* pointer(Address address) { return std::bit_cast<void*>(address); }

  static void copy(Address to, Address from, std::size_t bytes, Stream stream) {
    check(driver().copy(to, from, bytes, stream), "cuMemcpyDtoDAsync");
  }
  // Behind what was copied before, on the same stream.
  void say(Flag flag, Stream stream) const {
    copy(Shared::flag_in(shared_.other, flag), Shared::flag_in(shared_.own, kOne),
         sizeof(std::uint32_t), stream);
  }
  void wait_and_clear(Flag flag, Stream stream) const {
    const Address address = Shared::flag_in(shared_.own, flag);
    std::array<MemOp, 2> ops{
        MemOp{.operation = kWaitValue32, .address = address, .value = 1, .flags = kWaitEqual},
        MemOp{.operation = kWriteValue32, .address = address, .value = 0}};
    check(driver().operate(stream, ops.size(), ops.data(), 0), "cuStreamBatchMemOp");
  }

  const Shared shared_;
  const int rank_;
  const SumOnStream sum_;
  std::vector<Piece> pieces_;
};

// Allocates this process's memory, with flags as they are before the first exchange.
bool allocate(Shared& out, IpcHandle& handle) {
  const Driver& d = driver();
  if (!d.is_whole || d.allocate(&out.own, Shared::kBytes) != 0) return false;
  for (const Flag flag : {kMaySend, kOperandIsThere, kSumIsThere, kOne}) {
    const bool is_set = flag == kMaySend || flag == kOne;
    if (d.set(Shared::flag_in(out.own, flag), is_set ? 1 : 0, 1) != 0) return false;
  }
  return d.get_handle(&handle, out.own) == 0;
}

}  // namespace

std::unique_ptr<PeerCopies> make_peer_copies(Processes& processes, SumOnStream sum) {
  if (processes.count() != 2) return nullptr;
  Shared shared;
  IpcHandle own, other;
  bool is_ready = allocate(shared, own);
  const auto peer = static_cast<std::size_t>(1 - processes.rank());
  for (std::size_t i = 0; i < own.words.size(); ++i) {
    other.words[i] = processes.exchange(own.words[i])[peer];
  }
  // The other one's flags are set before its memory is opened.
  is_ready = holds_in_all(&processes, is_ready) &&
             driver().open_handle(&shared.other, other, kEnablePeerAccess) == 0;
  if (holds_in_all(&processes, is_ready)) {
    return std::make_unique<Copies>(shared, processes.rank(), std::move(sum));
  }
  shared.release();
  return nullptr;
}

}  // namespace tracestep
