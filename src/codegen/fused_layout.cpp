#include "codegen/fused_layout.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/indexed.h"

namespace tracestep {
namespace {

constexpr std::int64_t kPointThreads = 256;  // of a block where nothing is reduced
constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kRowThreads = 256;  // wanted; long rows get more
constexpr std::int64_t kMostThreads = 1024;
constexpr std::int64_t kHeldPacks = 4;      // of a row, per thread, before a row gets more threads
constexpr std::int64_t kRowsPerBlock = 4;   // where one warp holds a row
constexpr std::int64_t kSumThreads = 512;   // the most of a block that sums columns
constexpr std::int64_t kTileThreads = 128;  // of a tile of columns, side by side
// The number of threads wanted in a grid that sums columns: what the largest GPUs hold at once.
constexpr std::int64_t kWantedThreads = std::int64_t{1} << 18;
// The fewest points for which a thread takes 16 bytes of 16-bit elements: threads are enough then.
constexpr std::int64_t kManyPoints = std::int64_t{1} << 22;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

Access access_of(const FusedBody& body, ValueId id, std::string name, const FusedOperand& operand,
                 bool per_pair) {
  Access a{id,
           std::move(name),
           body.program.type(id).dtype,
           {},
           per_pair ? 2 : 1,
           operand.alignment_bytes,
           per_pair ? 0 : body.half};
  for (std::size_t i = 0; i + 1 < body.cuts.size(); ++i) {
    const std::int64_t cut = body.cuts[i];
    // A pair of points shares one element: a point is half a step along the innermost part.
    const std::int64_t step = per_pair && cut == 1
                                  ? operand.strides.back()
                                  : a.divisor * body.step(id, operand.strides, cut);
    a.steps.push_back(step);
  }
  return a;
}

void add_accesses(const FusedBody& body, std::span<const FusedOperand> leaves,
                  std::span<const FusedOperand> outputs, FusedLayout& out) {
  const Program& p = body.program;
  for (std::size_t i = 0; i < p.leaves.size(); ++i) {
    if (!body.places[at(p.leaves[i])]) continue;  // an unread leaf
    out.accesses.push_back(
        access_of(body, p.leaves[i], fmt::format("x{}", i), leaves[i], body.per_pair[i]));
    out.read.push_back(i);
  }
  out.operands = out.accesses.size();
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    out.accesses.push_back(
        access_of(body, p.outputs[i].value, fmt::format("y{}", i), outputs[i], false));
  }
}

// Sets `parts`: merges neighbours that are contiguous in all operands and results, but not
// across the end of a row, or of a rotated row whose pairs are half of it apart.
void merge_parts(const FusedBody& body, FusedLayout& out) {
  std::vector<std::vector<std::int64_t>> steps(out.accesses.size());
  for (std::size_t i = 0; i + 1 < body.cuts.size(); ++i) {
    const FusedPart part{body.cuts[i], body.cuts[i + 1] / body.cuts[i]};
    bool merges = !out.parts.empty() && part.cut != body.width && part.cut != 2 * body.half;
    for (std::size_t a = 0; a < out.accesses.size() && merges; ++a) {
      merges = out.accesses[a].steps[i] == steps[a].back() * out.parts.back().size;
    }
    if (merges) {
      out.parts.back().size *= part.size;
      continue;
    }
    out.parts.push_back(part);
    for (std::size_t a = 0; a < out.accesses.size(); ++a) {
      steps[a].push_back(out.accesses[a].steps[i]);
    }
  }
  if (out.parts.empty()) {
    out.parts.push_back({1, 1});
    for (auto& s : steps) s.push_back(0);
  }
  for (std::size_t a = 0; a < out.accesses.size(); ++a) out.accesses[a].steps = std::move(steps[a]);
}

// Chooses the elements of a pack. Short rows get packs of 4, which are 16 bytes in float32.
void choose_pack(const FusedBody& body, FusedLayout& out) {
  const bool narrow = std::ranges::any_of(out.accesses, [](const Access& a) {
    return a.dtype == DType::kBF16 || a.dtype == DType::kF16;
  });
  const bool is_short = body.width != 0 && body.width < 8 * kWarp;
  out.pack = narrow && body.count >= kManyPoints && !is_short ? 8 : 4;
  while (out.parts[0].size % out.pack != 0) out.pack /= 2;
}

// Returns how many rows a block that sums columns takes side by side. One after the other they
// would leave the memory idle while each is reduced, where there are few blocks.
std::int64_t rows_side_by_side(const FusedBody& body, const FusedLayout& layout) {
  const std::int64_t blocks = layout.tiles * (body.count / body.width / body.rows_per_block);
  std::int64_t rows = 1;
  const auto may_double = [&] {
    const std::int64_t threads = 2 * rows * layout.lanes;
    return body.rows_per_block % (2 * rows) == 0 && threads <= kSumThreads &&
           threads * layout.held() <= kMostSumPoints && blocks * threads <= kWantedThreads;
  };
  while (may_double()) rows *= 2;
  return rows;
}

void choose_threads(const FusedBody& body, FusedLayout& out) {
  if (body.width == 0) {
    out.lanes = kPointThreads;
    return;
  }
  const std::int64_t packs = body.width / out.pack;
  if (!body.reduces_rows()) {
    out.lanes = std::min(kTileThreads, ceil_div(packs, kWarp) * kWarp);
    out.tiles = ceil_div(packs, out.lanes);
    out.rows_per_block = rows_side_by_side(body, out);
    return;
  }
  out.held_packs = std::max(std::clamp<std::int64_t>(ceil_div(packs, kRowThreads), 1, kHeldPacks),
                            ceil_div(packs, kMostThreads));
  out.lanes = ceil_div(ceil_div(packs, out.held_packs), kWarp) * kWarp;
  if (body.rows_per_block != 0) {
    out.rows_per_block = rows_side_by_side(body, out);
  } else if (out.lanes == kWarp) {
    out.rows_per_block = kRowsPerBlock;
  }
}

std::int64_t blocks_of(const FusedBody& body, const FusedLayout& layout) {
  if (body.width == 0) return ceil_div(body.count / layout.pack, layout.lanes);
  const std::int64_t rows = body.count / body.width;
  return body.rows_per_block != 0 ? layout.tiles * (rows / body.rows_per_block)
                                  : ceil_div(rows, layout.rows_per_block);
}

}  // namespace

bool Access::repeats() const {
  return std::ranges::all_of(steps, [](std::int64_t step) { return step == 0; });
}

bool Access::has_packs(std::int64_t n) const {
  const std::int64_t elements = half != 0 ? n / 2 : n / divisor;
  const auto bytes = elements * static_cast<std::int64_t>(size_of(dtype));
  const bool aligned = alignment_bytes >= std::min<std::int64_t>(bytes, 16) &&
                       std::has_single_bit(static_cast<std::uint64_t>(elements));
  const std::int64_t apart = half != 0 ? elements : n;
  return aligned && steps[0] == 1 && half % elements == 0 &&
         std::all_of(steps.begin() + 1, steps.end(),
                     [&](std::int64_t step) { return step % apart == 0; });
}

std::size_t FusedLayout::first_part_behind(std::int64_t points) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(parts, [&](const FusedPart& part) { return part.cut < points; }));
}

std::int64_t FusedLayout::largest_offset() const {
  std::int64_t out = 0;
  for (const Access& a : accesses) {
    std::int64_t last = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) last += (parts[k].size - 1) * a.steps[k];
    out = std::max(out, last);
  }
  return out;
}

FusedLayout lay_out(const FusedBody& body, std::span<const FusedOperand> leaves,
                    std::span<const FusedOperand> outputs) {
  FusedLayout out;
  add_accesses(body, leaves, outputs, out);
  merge_parts(body, out);
  choose_pack(body, out);
  choose_threads(body, out);
  out.blocks = blocks_of(body, out);
  return out;
}

}  // namespace tracestep
