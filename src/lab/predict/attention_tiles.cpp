#include "lab/predict/attention_tiles.h"

#include <algorithm>

#include "base/integers.h"
#include "planning/cpu_plans.h"

namespace tracestep {
namespace {

constexpr std::int64_t kColumns = AttentionPlan::kWidestStrip, kRows = AttentionPlan::kTallestStrip;

// Which keys the queries of an attention see: all, or, if causal, the latest in a window.
struct View {
  std::int64_t queries, keys, window;
  bool causal;

  View(const AttentionSizes& s, const Attrs& attrs)
      : queries(s.queries),
        keys(s.keys),
        window(attrs.integer("window") > 0 ? attrs.integer("window") : s.keys),
        causal(attrs.flag("causal")) {}

  // Returns the index after the last key that `query` sees; the last query sees the last key.
  std::int64_t end(std::int64_t query) const {
    return causal ? std::clamp<std::int64_t>(query + 1 + keys - queries, 0, keys) : keys;
  }
  std::int64_t begin(std::int64_t query) const {
    return causal ? std::max<std::int64_t>(0, end(query) - window) : 0;
  }
};

// Returns how many keys before `end` the block [first, first + count) has, up to whole rows of
// tiles. Keys that a window hides count: they are computed if the panel sees others of the block.
std::int64_t rows_until(std::int64_t end, std::int64_t first, std::int64_t count) {
  return round_up(std::clamp<std::int64_t>(end - first, 0, count), kRows);
}

}  // namespace

AttentionTiles attention_tiles(const AttentionSizes& sizes, const Attrs& attrs, bool is_grad) {
  AttentionTiles out;
  if (sizes.is_empty()) return out;
  const View view(sizes, attrs);
  const std::int64_t keys_at_once =
      round_up(is_grad ? plan_attention(sizes).backward_keys : AttentionPlan::kKeys, kRows);
  // Panels of queries are of about one size.
  const std::int64_t panels = ceil_div(view.queries, AttentionPlan::kQueries);
  const std::int64_t panel = round_up(ceil_div(view.queries, panels), kColumns);
  std::int64_t pairs = 0, scores = 0, rows = 0;
  for (std::int64_t q = 0; q < view.queries; ++q) pairs += view.end(q) - view.begin(q);
  // Forward, a panel is packed, and so are the keys and values that it meets. Backward, a block of
  // keys is packed once, and each panel that meets it is packed four times and added to once.
  if (is_grad) rows += 3 * view.keys;
  for (std::int64_t first = 0; first < view.queries; first += panel) {
    const std::int64_t end = std::min(first + panel, view.queries);
    if (!is_grad) rows += 2 * (end - first);
    for (std::int64_t key = 0; key < view.end(end - 1); key += keys_at_once) {
      const std::int64_t count = std::min(keys_at_once, view.keys - key);
      if (view.begin(first) >= key + count) continue;
      rows += is_grad ? 5 * (end - first) : 2 * count;
      for (std::int64_t q = first; q < end; q += kColumns) {
        const std::int64_t last = std::min(q + kColumns, view.queries) - 1;
        scores += kColumns * rows_until(view.end(last), key, count);
      }
    }
  }
  const auto heads = static_cast<double>(sizes.heads);
  out.scores = heads * static_cast<double>(scores);
  out.packed = heads * static_cast<double>(rows * sizes.width);
  if (pairs > 0) {
    out.scores_per_pair = std::max(1.0, static_cast<double>(scores) / static_cast<double>(pairs));
  }
  return out;
}

}  // namespace tracestep
