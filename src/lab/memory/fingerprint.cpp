#include "lab/memory/fingerprint.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/report/columns.h"

namespace tracestep {
namespace {

constexpr std::int64_t kRounding = 512;  // of blocks, where a trace has no requested sizes

enum class Kind { kScores, kMask, kResidual, kHidden, kLogits, kWeight };

struct Wanted {
  Kind kind;
  const char* what;
  const char* letters;
  std::int64_t elements;
  int element_bytes;
  std::int64_t live = 0, most = 0;

  std::int64_t bytes() const { return elements * element_bytes; }
  // Exactly, or as a block that was rounded up.
  bool is(std::int64_t size) const {
    return size == bytes() || size == (bytes() + kRounding - 1) / kRounding * kRounding;
  }
};

std::vector<Wanted> wanted_of(const ModelConfig& m, BatchShape s) {
  const std::int64_t b = s.batch, t = s.context, c = m.d_model, f = m.d_ff;
  std::vector<Wanted> out;
  const auto add = [&](Kind kind, const char* what, const char* letters, std::int64_t elements,
                       std::initializer_list<int> sizes) {
    for (int size : sizes) out.push_back({kind, what, letters, elements, size});
  };
  add(Kind::kScores, "scores", "BHT²", b * m.heads * t * t, {4, 2});
  add(Kind::kMask, "mask", "T²", t * t, {1, 4});
  add(Kind::kResidual, "residual stream", "BTC", b * t * c, {4, 2});
  add(Kind::kHidden, "feed-forward", "BTF", b * t * f, {4, 2});
  add(Kind::kLogits, "logits", "BTV", b * t * m.vocab, {4, 2});
  add(Kind::kWeight, "feed-forward weight", "CF", c * f, {4, 2});
  add(Kind::kWeight, "projection weight", "C²", c * c, {4, 2});
  return out;
}

void count(const MemoryTrace& trace, std::vector<Wanted>& wanted) {
  const auto change = [&](std::int64_t bytes, std::int64_t by) {
    for (Wanted& w : wanted) {
      if (!w.is(bytes)) continue;
      w.live += by;
      w.most = std::max(w.most, w.live);
    }
  };
  for (std::int64_t bytes : trace.there_before) change(bytes, 1);
  for (const TraceEvent& e : trace.events) change(e.bytes, e.is_alloc ? 1 : -1);
}

// Other kinds of the same size cannot be told apart.
std::string confusable(const std::vector<Wanted>& wanted, const Wanted& with) {
  std::string out;
  for (const Wanted& w : wanted) {
    if (&w == &with || !w.is(with.bytes())) continue;
    out += fmt::format("{}{} of {} bytes", out.empty() ? "" : ", ", w.letters, w.element_bytes);
  }
  return out;
}

const char* reading_of(int scores) {
  switch (scores) {
    case 0: return "no scores are kept: attention in tiles, recomputed, or no gradients";
    case 1: return "one is kept: softmax with its own gradient, from its result";
    case 2: return "two are kept: exp and weights, softmax as separate operations";
    case 3: return "three are kept: masked or scaled scores besides exp and weights";
    default: return "more than three are kept: operations on scores that could be one";
  }
}

}  // namespace

Fingerprint fingerprint_of(const MemoryTrace& trace, const ModelConfig& model, BatchShape shape) {
  std::vector<Wanted> wanted = wanted_of(model, shape);
  count(trace, wanted);
  Fingerprint out;
  out.table = {.name = "fingerprint", .title = "What the trace holds, by size"};
  out.table.columns = {text_column("tensor"),
                       text_column("elements"),
                       int_column("element_bytes", "bytes of one"),
                       bytes_column("bytes", "bytes each"),
                       int_column("most", "most at once"),
                       real_column("per_layer", "per layer", "", 2),
                       text_column("same_size_as", "same size as", "cannot be told apart")};
  std::int64_t narrow_weights = 0;
  for (const Wanted& w : wanted) {
    out.table.add_row({w.what, w.letters, std::int64_t{w.element_bytes}, w.bytes(), w.most,
                       static_cast<double>(w.most) / static_cast<double>(model.layers),
                       confusable(wanted, w)});
    // One layer's temporaries of this size come on top of what all layers keep.
    const auto per_layer = static_cast<int>(w.most / model.layers);
    if (w.kind == Kind::kScores && per_layer > 0) {
      out.scores_per_layer += per_layer;
      out.score_bytes = std::max(out.score_bytes, w.element_bytes);
    }
    if (w.kind == Kind::kMask && w.most > 0) out.has_mask = true;
    if (w.kind == Kind::kWeight && w.element_bytes == 2) narrow_weights += w.most;
  }
  // Seven matrices are multiplied per layer; half of them at once is no accident.
  out.has_weight_copies = narrow_weights * 2 >= 7 * model.layers;
  auto& notes = out.table.notes;
  notes.push_back(fmt::format("{} tensors of BHT² per layer: {}", out.scores_per_layer,
                              reading_of(out.scores_per_layer)));
  notes.emplace_back(out.has_mask ? "a mask of T² elements is there"
                                  : "no mask of T² elements: made inside a kernel, or none");
  notes.emplace_back(out.has_weight_copies ? "weights have narrow copies: autocast, or stored so"
                                           : "weights have no narrow copies");
  if (model.layers < 4) {
    notes.emplace_back("with fewer than four layers, temporaries may be taken for kept tensors");
  }
  return out;
}

}  // namespace tracestep
