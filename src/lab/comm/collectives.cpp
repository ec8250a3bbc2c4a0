#include "lab/comm/collectives.h"

#include <algorithm>

#include "base/host_tensor.h"
#include "exec/rank_threads.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "ops/collective_sizes.h"
#include "record/recorder.h"

namespace tracestep {
namespace {

// One rank's tensors and moments.
class TimedRank {
 public:
  TimedRank(Communicator& group, const CollectiveSpec& spec)
      : group_(group),
        spec_(spec),
        whole_(HostTensor::zeros(DType::kF32, {count_of(spec)})),
        part_(HostTensor::zeros(DType::kF32, {part_count(count_of(spec), spec.ranks)})) {}

  static std::int64_t count_of(const CollectiveSpec& spec) {
    return spec.bytes / static_cast<std::int64_t>(sizeof(float));
  }

  void run() {
    for (int i = 0; i < spec_.warmup; ++i) call();
    const std::int64_t before = group_.received_bytes();
    for (int i = 0; i < spec_.calls; ++i) {
      begins_ns.push_back(now_ns());
      call();
      ends_ns.push_back(now_ns());
    }
    received_bytes = (group_.received_bytes() - before) / std::max(1, spec_.calls);
  }

  std::vector<std::int64_t> begins_ns, ends_ns;  // by call
  std::int64_t received_bytes = 0;               // in a call

 private:
  void call() {
    const TensorRef whole = ref(whole_), part = ref(part_);
    if (spec_.op == "all_reduce") {
      group_.all_reduce(whole, whole);
    } else if (spec_.op == "reduce_scatter") {
      group_.reduce_scatter(whole, part);
    } else {
      group_.all_gather(part, whole);
    }
  }

  static TensorRef ref(HostTensor& x) {
    return {x.bytes.data(), x.dtype, x.shape, contiguous_strides(x.shape)};
  }

  Communicator& group_;
  const CollectiveSpec& spec_;
  HostTensor whole_, part_;
};

// Milliseconds of call `i`.
double duration_ms(const std::vector<TimedRank>& ranks, std::size_t i) {
  std::int64_t begin = ranks[0].begins_ns[i], end = ranks[0].ends_ns[i];
  for (const TimedRank& rank : ranks) {
    begin = std::max(begin, rank.begins_ns[i]);
    end = std::max(end, rank.ends_ns[i]);
  }
  return static_cast<double>(end - begin) * 1e-6;
}

void check(const CollectiveSpec& spec) {
  if (spec.bytes < 1 || spec.bytes % static_cast<std::int64_t>(sizeof(float)) != 0) {
    fail_usage("bytes", "{} are no whole number of float32 elements", spec.bytes);
  }
}

double gigabytes_per_s(std::int64_t bytes, const CollectiveTimes& t) {
  return static_cast<double>(bytes) / (median_of(t.samples_ms) * 1e6);
}

}  // namespace

CollectiveTimes time_collective(const GroupFactory& make_group, const CollectiveSpec& spec) {
  check(spec);
  const auto group = make_group(spec.ranks);
  std::vector<TimedRank> ranks;
  for (const auto& communicator : group) ranks.emplace_back(*communicator, spec);
  RankThreads threads(spec.ranks);
  const RankThreads::Failure failure = threads.run(
      [&](int rank) { ranks[static_cast<std::size_t>(rank)].run(); }, [&] { group[0]->end(); });
  if (failure.error) std::rethrow_exception(failure.error);
  CollectiveTimes out{.spec = spec, .received_bytes = ranks[0].received_bytes, .samples_ms = {}};
  for (int i = 0; i < spec.calls; ++i) {
    out.samples_ms.push_back(duration_ms(ranks, static_cast<std::size_t>(i)));
  }
  return out;
}

Table collective_table(const std::vector<CollectiveTimes>& times) {
  using T = CollectiveTimes;
  const Fields<T> fields = {
      {text_column("collective"), [](const T& t) { return t.spec.op; }},
      {int_column("ranks"), [](const T& t) { return t.spec.ranks; }},
      {bytes_column("bytes", "size", "of the whole tensor"),
       [](const T& t) { return t.spec.bytes; }},
      {bytes_column("received_bytes", "received", "by the first rank from the others, in a call"),
       &T::received_bytes},
      {real_column("median_ms", "median", "ms", 3, "from the last rank's call to the last result"),
       [](const T& t) { return finite_or_null(median_of(t.samples_ms)); }},
      {real_column("min_ms", "least", "ms", 3),
       [](const T& t) { return finite_or_null(min_of(t.samples_ms)); }},
      {real_column("max_ms", "most", "ms", 3),
       [](const T& t) { return finite_or_null(max_of(t.samples_ms)); }},
      {real_column("algorithm_gb_s", "algorithm", "GB/s", 2, "the tensor's bytes per second"),
       [](const T& t) { return finite_or_null(gigabytes_per_s(t.spec.bytes, t)); }},
      {real_column("bus_gb_s", "bus", "GB/s", 2, "what a rank gets from the others, per second"),
       [](const T& t) { return finite_or_null(gigabytes_per_s(t.received_bytes, t)); }},
      {data_only(reals_column("samples_ms", "every call")),
       [](const T& t) { return list_of(t.samples_ms); }}};
  Table table = table_of("collectives", "Collectives of float32, alone", fields, times);
  table.notes.push_back(
      "ranks are threads of this process; the time of a call begins when its last rank is there");
  return table;
}

}  // namespace tracestep
