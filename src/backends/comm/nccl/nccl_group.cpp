// Collectives are issued on the stream of a lane, so that they run between the device's kernels or
// at the same time as those of another lane, and are captured with them.
#include "backends/comm/nccl/nccl_group.h"

#include <bit>
#include <cstdlib>
#include <exception>
#include <map>
#include <utility>

#include "backends/comm/nccl/nccl_library.h"
#include "base/error.h"
#include "ops/collective_sizes.h"
#include "runtime/host_wait.h"

namespace tracestep {
namespace {

void check(int status, const char* call) {
  if (status == 0) return;
  throw DeviceError("nccl", call, nccl::library().get_error_string(status));
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return nccl::kFloat16;
    case DType::kBF16: return nccl::kBFloat16;
    case DType::kF32: return nccl::kFloat32;
    case DType::kF64: return nccl::kFloat64;
    case DType::kF8E4M3:
    case DType::kF8E5M2: return nccl::kUint8;  // gathered, not added
    default: TRACESTEP_CHECK(false, "collectives of {}", name_of(dtype));
  }
  return nccl::kFloat32;
}

std::byte* element(const TensorRef& tensor, std::int64_t index) {
  return tensor.as<std::byte>() + index * static_cast<std::int64_t>(size_of(tensor.dtype));
}

class NcclGroup final : public Communicator {
 public:
  NcclGroup(Processes& processes, StreamOfLane stream_of_lane)
      : processes_(processes),
        stream_of_lane_(std::move(stream_of_lane)),
        stream_(stream_of_lane_(0)),
        nccl_(nccl::library()),
        kind_{processes.count()} {
    // When NVLink multicast fails, it takes switches out of service that other programs share; who
    // wants it all the same sets the variable.
    ::setenv("NCCL_NVLS_ENABLE", "0", 0);
    nccl::UniqueId id{};
    if (rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    processes.broadcast(std::as_writable_bytes(std::span(id.bytes)));
    const HostWait wait("the others, to connect by NCCL");
    check(nccl_.comm_init_rank(&comm_, ranks(), id, rank()), "ncclCommInitRank");
  }
  // Makes this process's communicator in its group of the kind `kind`, by splitting `all`.
  NcclGroup(NcclGroup& all, const RankGroup& kind)
      : processes_(all.processes_),
        stream_of_lane_(all.stream_of_lane_),
        stream_(all.stream_),
        nccl_(all.nccl_),
        kind_(kind) {
    const int process = processes_.rank();
    if (nccl_.comm_split == nullptr) {
      throw DeviceError("nccl", "ncclCommSplit", "is not in this NCCL; tp=N needs 2.18 or newer");
    }
    const HostWait wait("the others, to connect by NCCL");
    check(nccl_.comm_split(all.comm_, static_cast<int>(kind.first_of(process)), process, &comm_,
                           nullptr),
          "ncclCommSplit");
  }
  ~NcclGroup() override {
    parts_.clear();  // before what they were split from
    // Destroying waits for the other ranks, which do not know yet of an error that ends this one.
    if (std::uncaught_exceptions() > exceptions_) return;
    const HostWait wait("the others, to part from NCCL");
    nccl_.comm_destroy(comm_);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const override { return static_cast<int>(kind_.index_of(processes_.rank())); }
  int ranks() const override { return static_cast<int>(kind_.ranks); }

  Communicator& among(const RankGroup& kind) override {
    if (kind.ranks == ranks()) return *this;
    auto& part = parts_[kind];
    if (!part) part = std::make_unique<NcclGroup>(*this, kind);
    return *part;
  }

  void all_reduce(const TensorRef& x, const TensorRef& y) override {
    check(nccl_.all_reduce(x.data, y.data, static_cast<std::size_t>(x.count()), type_of(x.dtype),
                           nccl::kSum, comm_, stream_),
          "ncclAllReduce");
    const std::int64_t own = own_part_of(x.count(), ranks(), rank()).count;
    count_bytes(x.dtype, (ranks() - 1) * own + (x.count() - own));
  }

  void reduce_scatter(const TensorRef& x, const TensorRef& part) override {
    const std::int64_t own = own_part_of(x.count(), ranks(), rank()).count;
    if (x.count() % ranks() == 0) {
      check(nccl_.reduce_scatter(x.data, part.data, static_cast<std::size_t>(own), type_of(x.dtype),
                                 nccl::kSum, comm_, stream_),
            "ncclReduceScatter");
    } else {
      each_part(x.count(), [&](int owner, OwnPart theirs) {
        check(nccl_.reduce(element(x, theirs.first), part.data,
                           static_cast<std::size_t>(theirs.count), type_of(x.dtype), nccl::kSum,
                           owner, comm_, stream_),
              "ncclReduce");
      });
      clear_padding(part, own);
    }
    count_bytes(x.dtype, (ranks() - 1) * own);
  }

  void all_gather(const TensorRef& part, const TensorRef& y) override {
    const std::int64_t own = own_part_of(y.count(), ranks(), rank()).count;
    if (y.count() % ranks() == 0) {
      check(nccl_.all_gather(part.data, y.data, static_cast<std::size_t>(own), type_of(y.dtype),
                             comm_, stream_),
            "ncclAllGather");
    } else {
      each_part(y.count(), [&](int owner, OwnPart theirs) {
        check(nccl_.broadcast(part.data, element(y, theirs.first),
                              static_cast<std::size_t>(theirs.count), type_of(y.dtype), owner,
                              comm_, stream_),
              "ncclBroadcast");
      });
    }
    count_bytes(y.dtype, y.count() - own);
  }

  void use_lane(int lane) override {
    stream_ = stream_of_lane_(lane);
    for (const auto& [kind, part] : parts_) part->use_lane(lane);
  }
  // Begins a group of NCCL's calls, which end_batch() closes and NCCL makes by one launch.
  void begin_batch() override { check(nccl_.group_start(), "ncclGroupStart"); }
  void end_batch() override { check(nccl_.group_end(), "ncclGroupEnd"); }

  std::int64_t received_bytes() const override {
    std::int64_t total = received_bytes_;
    for (const auto& [kind, part] : parts_) total += part->received_bytes();
    return total;
  }
  // Does nothing: the error of one rank ends all processes anyway.
  void end() override {}
  void restart() override {}
  Processes* processes() const override { return &processes_; }

 private:
  // Calls f(owner, owner's part of `count` elements) for each rank, as one group of NCCL's calls.
  template <class F>
  void each_part(std::int64_t count, F&& f) {
    check(nccl_.group_start(), "ncclGroupStart");
    for (int owner = 0; owner < ranks(); ++owner) {
      const OwnPart theirs = own_part_of(count, ranks(), owner);
      if (theirs.count > 0) f(owner, theirs);
    }
    check(nccl_.group_end(), "ncclGroupEnd");
  }

  void clear_padding(const TensorRef& part, std::int64_t own) {
    const std::size_t bytes = static_cast<std::size_t>(part.count() - own) * size_of(part.dtype);
    if (bytes == 0) return;
    const int status =
        nccl_.memset(std::bit_cast<std::uint64_t>(element(part, own)), 0, bytes, stream_);
    if (status != 0) throw DeviceError("nccl", "cuMemsetD8Async", fmt::format("error {}", status));
  }

  void count_bytes(DType dtype, std::int64_t elements) {
    received_bytes_ += elements * static_cast<std::int64_t>(size_of(dtype));
  }

  Processes& processes_;
  const StreamOfLane stream_of_lane_;
  void* stream_;  // of the lane in use
  const nccl::Library& nccl_;
  const RankGroup kind_;
  std::map<RankGroup, std::unique_ptr<NcclGroup>> parts_;
  const int exceptions_ = std::uncaught_exceptions();
  nccl::Comm* comm_ = nullptr;
  std::int64_t received_bytes_ = 0;
};

}  // namespace

std::string nccl_version(std::string& problem) {
  const nccl::Library& nccl = nccl::library();
  problem = nccl.problem;
  int version = 0;
  if (!problem.empty() || nccl.get_version(&version) != 0) return "";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Communicator> make_nccl_group(Processes& processes, StreamOfLane stream_of_lane) {
  if (const std::string& problem = nccl::library().problem; !problem.empty()) {
    throw Error(ErrorCode::kDevice, "NCCL", problem,
                "install it or set LD_LIBRARY_PATH; it connects GPUs");
  }
  return std::make_unique<NcclGroup>(processes, std::move(stream_of_lane));
}

}  // namespace tracestep
