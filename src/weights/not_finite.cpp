#include "weights/not_finite.h"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <set>

#include "exec/executor.h"
#include "ir/op_def.h"
#include "weights/saved_tensors.h"

namespace tracestep {
namespace {

struct Tally {
  std::int64_t infinite = 0, nan = 0;
};

// Counts infinities and NaN by their bits, at any alignment: a number with all exponent bits set is
// an infinity, or a NaN if mantissa bits are set too. `infinity`: the bits of one.
template <std::unsigned_integral Bits>
Tally tally(std::span<const std::byte> bytes, Bits infinity) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Tally out;
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits x;
    std::memcpy(&x, bytes.data() + i, sizeof x);
    x &= kMagnitude;
    out.infinite += x == infinity ? 1 : 0;
    out.nan += x > infinity ? 1 : 0;
  }
  return out;
}

Tally tally(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::kF64: return tally<std::uint64_t>(tensor.bytes, 0x7ff0'0000'0000'0000);
    case DType::kF32: return tally<std::uint32_t>(tensor.bytes, 0x7f80'0000);
    case DType::kBF16: return tally<std::uint16_t>(tensor.bytes, 0x7f80);
    case DType::kF16: return tally<std::uint16_t>(tensor.bytes, 0x7c00);
    default: return {};
  }
}

std::string place_of(const Node& node) {
  const Origin& origin = node.origin();
  const std::string path = origin.path.empty() ? "" : " at " + origin.path;
  return fmt::format("the result of {}{} ({})", node.op->name, path, name_of(origin.phase));
}

// Searches the results of one node after the other for the first that is not finite.
class Search {
 public:
  explicit Search(const Executor& executor) : executor_(executor) {}

  void look(NodeId id) {
    const Program& program = executor_.program();
    const Node& node = program.node(id);
    for (ValueId v : node.outputs) {
      if (found_) return;
      const std::optional<HostTensor> value = executor_.value(v);
      if (!value) continue;
      found_ = find_not_finite(place_of(node), *value);
      if (!found_) continue;
      found_->phase = node.origin().phase;
      if (found_->nan == 0 && is_meant(node)) {
        meant_.insert(program.value(v).layout.base);
        found_.reset();
      }
    }
  }

  const std::optional<NotFinite>& found() const { return found_; }

 private:
  // True if infinities in the node's results come from a constant, as those of a mask do.
  bool is_meant(const Node& node) const {
    if (node.inputs.empty()) return true;
    const Program& program = executor_.program();
    return std::ranges::any_of(
        node.inputs, [&](ValueId v) { return meant_.contains(program.value(v).layout.base); });
  }

  const Executor& executor_;
  std::set<ValueId> meant_;  // values with infinities from constants
  std::optional<NotFinite> found_;
};

}  // namespace

std::string NotFinite::str() const {
  return fmt::format("{} holds {} NaN and {} infinite of {} values", what, nan, infinite, count);
}

std::optional<NotFinite> find_not_finite(const std::string& name, const TensorView& tensor) {
  const Tally seen = tally(tensor);
  if (seen.infinite + seen.nan == 0) return std::nullopt;
  return NotFinite{name, tensor.dtype, seen.infinite, seen.nan, tensor.count()};
}

std::optional<NotFinite> find_not_finite(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (auto found = find_not_finite(name, tensor)) return found;
  }
  return std::nullopt;
}

std::optional<NotFinite> find_not_finite(const SavedTensors& tensors) {
  for (const std::string& name : tensors.names()) {
    if (auto found = find_not_finite(name, tensors.read(name))) return found;
  }
  return std::nullopt;
}

std::optional<NotFinite> find_not_finite(Executor& executor) {
  Search search(executor);
  std::vector<RunObserver::Pause> pauses;
  const auto nodes = static_cast<NodeId>(executor.program().nodes.size());
  for (NodeId id = 0; id < nodes; ++id) {
    if (!executor.buffer_plan().runs[static_cast<std::size_t>(id)]) continue;
    pauses.push_back({id + 1, [&search, id] { search.look(id); }});
  }
  {
    const Observation each(executor, [&](RunObserver& o) { o.pauses = std::move(pauses); });
    executor.run();
  }
  executor.release_outputs();
  return search.found();
}

}  // namespace tracestep
