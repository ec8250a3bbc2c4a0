#include "lab/snapshots/fingerprint.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "ir/layer_path.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

constexpr std::int64_t kRounding = 512;  // of blocks, where a trace has no requested sizes

enum class Kind { kScores, kMask, kWeight, kOther };

struct Wanted {
  Kind kind;
  const char* what;
  const char* letters;
  std::int64_t elements;
  int element_bytes;
  std::int64_t live = 0, most = 0;

  std::int64_t bytes() const { return elements * element_bytes; }
  // True if `size` is the tensor's number of bytes, exactly or rounded up as for a block.
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
  add(Kind::kOther, "residual stream", "BTC", b * t * c, {4, 2});
  add(Kind::kOther, "feed-forward", "BTF", b * t * f, {4, 2});
  add(Kind::kOther, "logits", "BTV", b * t * m.vocab, {4, 2});
  add(Kind::kOther, "rows of scores", "BHT", b * m.heads * t, {4});
  if (m.rotated_width() > 0) {
    add(Kind::kOther, "rotation table", "TD/2", t * m.rotated_width() / 2, {4});
  }
  add(Kind::kWeight, "feed-forward weight", "CF", c * f, {4, 2});
  add(Kind::kWeight, "projection weight", m.query_width() == c ? "C²" : "C·HD", c * m.query_width(),
      {4, 2});
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
  for (const AllocatorEvent& e : trace.events) change(e.bytes, e.is_alloc ? 1 : -1);
}

// Names other tensors of the same size, which sizes alone cannot tell apart.
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

constexpr const char *kKept = "kept_by_name", *kIsMissing = "is_missing";

// Sets the cell of `column` in the first of the table's rows about this kind of tensor.
void set_first(Table& table, std::string_view tensor, const char* column, Json value) {
  const auto row =
      std::ranges::find_if(table.rows, [&](const auto& r) { return r[0] == Json(tensor); });
  if (row != table.rows.end()) (*row)[*table.index_of(column)] = std::move(value);
}

Table table_of_kinds(const std::vector<Wanted>& wanted, const ModelConfig& model) {
  Table out{.name = "fingerprint", .title = "What the trace holds, by size"};
  out.columns = {text_column("tensor"),
                 text_column("elements"),
                 int_column("element_bytes", "bytes of one"),
                 col::bytes.titled("bytes each"),
                 int_column("most", "most at once"),
                 real_column("per_layer", "per layer", "", 2),
                 text_column("same_size_as", "same size as", "sizes cannot tell them apart"),
                 data_only(int_column(kKept, "", "of each layer, where the file names them")),
                 data_only(bool_column(kIsMissing, "", "that every step of this model has"))};
  for (const Wanted& w : wanted) {
    out.add_row({w.what, w.letters, std::int64_t{w.element_bytes}, w.bytes(), w.most,
                 static_cast<double>(w.most) / static_cast<double>(model.layers),
                 or_null(confusable(wanted, w)), Json(), Json()});
  }
  return out;
}

// --- from what the file says ---------------------------------------------------------------------

// True if the file names the purpose of its allocations, as parameters or activations; snapshots of
// this program do.
bool has_categories(const MemoryTrace& trace) {
  return std::ranges::any_of(trace.labels, [](const TraceLabel& label) {
    return label.category == "parameter" || label.category == "activation";
  });
}

bool is_of_attention(const TraceLabel& label, std::string_view part) {
  const std::string component = scope::path({scope::kAttention, part});
  return label.scope.ends_with(component) || label.scope.find(component + ".") != std::string::npos;
}

// True for tensors of B·H·T², by the component that made them: all of softmax, the product that
// makes the scores, as softmax may write into its storage, and a cast in the component of the
// values, as it casts the attention weights.
bool is_of_scores(const TraceLabel& label) {
  return is_of_attention(label, scope::kSoftmax) ||
         (is_of_attention(label, scope::kScores) && label.op == "matmul") ||
         (is_of_attention(label, scope::kValues) && label.op == "cast");
}

bool is_of_mask(const TraceLabel& label) {
  return label.op == "le" && label.category != "workspace";
}

// A scope without its layer: "attn.softmax" of "layers.2.attn.softmax".
std::string component_of(const std::string& scope) {
  const std::size_t layer = layer_of(scope).size();
  return layer > 0 && layer < scope.size() ? scope.substr(layer + 1) : scope;
}

// Counts how many score tensors that are kept for backward are alive at most, by what made them.
class KeptScores {
 public:
  KeptScores(const MemoryTrace& trace, const std::vector<Wanted>& wanted) {
    for (const AllocatorEvent& e : trace.events) {
      if (!e.is_alloc) {
        free(e.address);
        continue;
      }
      if (e.label < 0) continue;
      const TraceLabel& label = trace.labels[static_cast<std::size_t>(e.label)];
      if (label.category != "activation" || !is_of_scores(label)) continue;
      for (const Wanted& w : wanted) {
        if (w.kind == Kind::kScores && w.bytes() == e.bytes) allocate(e.address, label, w);
      }
    }
  }

  // Adds to `out` the count for each of `layers` layers, and notes on what made the tensors.
  void add_to(Fingerprint& out, std::int64_t layers) const {
    std::string makers;
    int narrow = 0;
    for (const auto& [maker, counts] : by_maker_) {
      const auto per_layer = static_cast<int>(counts.most / layers);
      if (per_layer == 0) continue;
      out.scores_per_layer += per_layer;
      out.score_bytes = std::max(out.score_bytes, maker.element_bytes);
      if (maker.is_copy) narrow += per_layer;
      makers += fmt::format("{}{} of {}, {} bytes", makers.empty() ? "" : "; ", maker.op,
                            maker.component, maker.element_bytes);
    }
    auto& notes = out.table.notes;
    notes.push_back(fmt::format("{} tensors of BHT² per layer, by categories and frames{}{}{}",
                                out.scores_per_layer, makers.empty() ? "" : " (", makers,
                                makers.empty() ? "" : ")"));
    notes.emplace_back(reading_of(out.scores_per_layer - narrow));
    if (narrow > 0) {
      notes.push_back(
          fmt::format("{} of them a narrow copy of the weights for their product", narrow));
    }
  }

 private:
  struct Maker {
    std::string component, op;
    int element_bytes;
    bool is_copy;  // of another one of them, in fewer bytes
    friend auto operator<=>(const Maker&, const Maker&) = default;
  };
  struct Counts {
    std::int64_t live = 0, most = 0;
  };

  void allocate(std::int64_t address, const TraceLabel& label, const Wanted& kind) {
    const bool is_copy = is_of_attention(label, scope::kValues);
    Counts& counts = by_maker_[{component_of(label.scope), label.op, kind.element_bytes, is_copy}];
    counts.most = std::max(counts.most, ++counts.live);
    live_[address] = &counts;
  }
  void free(std::int64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    --found->second->live;
    live_.erase(found);
  }

  std::map<Maker, Counts> by_maker_;
  std::map<std::int64_t, Counts*> live_;
};

void read_categories(const MemoryTrace& trace, const std::vector<Wanted>& wanted,
                     const ModelConfig& model, Fingerprint& out) {
  KeptScores(trace, wanted).add_to(out, model.layers);
  const auto is_mask = [&](const AllocatorEvent& e) {
    return e.label >= 0 && is_of_mask(trace.labels[static_cast<std::size_t>(e.label)]) &&
           std::ranges::any_of(wanted, [&](const Wanted& w) {
             return w.kind == Kind::kMask && w.bytes() == e.bytes;
           });
  };
  if (std::ranges::any_of(trace.events, is_mask)) out.mask = Presence::kYes;
  const auto is_copy = [](const TraceLabel& label) { return label.category == "weight_cast"; };
  if (std::ranges::any_of(trace.labels, is_copy)) out.weight_copies = Presence::kYes;
}

// --- from sizes alone ----------------------------------------------------------------------------
// Finds, by sizes alone, the scores per layer, a mask, and narrow copies of weights. A finding is
// ambiguous if other tensors of the model have the same size.
void read_sizes(const std::vector<Wanted>& wanted, const ModelConfig& model, Fingerprint& out) {
  std::int64_t narrow = 0, perhaps_narrow = 0;
  std::string others;  // tensors that may be taken for scores
  for (const Wanted& w : wanted) {
    const std::string same = confusable(wanted, w);
    // Temporaries of one layer come on top of tensors of their size that all layers keep.
    const auto per_layer = static_cast<int>(w.most / model.layers);
    if (w.kind == Kind::kScores && per_layer > 0) {
      out.scores_per_layer += per_layer;
      out.score_bytes = std::max(out.score_bytes, w.element_bytes);
      if (!same.empty()) others += (others.empty() ? "" : ", ") + same;
    }
    if (w.kind == Kind::kMask && w.most > 0 && out.mask != Presence::kYes) {
      out.mask = same.empty() ? Presence::kYes : Presence::kAmbiguous;
    }
    if (w.kind == Kind::kWeight && w.element_bytes == 2) {
      (same.empty() ? narrow : perhaps_narrow) += w.most;
    }
  }
  out.scores_are_ambiguous = !others.empty();
  // Half of the matrices that layers multiply at once is no accident.
  const std::int64_t matrices = (model.is_gated ? 7 : 6) * model.layers;
  const auto are_copies = [&](std::int64_t count) { return count * 2 >= matrices; };
  out.weight_copies = are_copies(narrow)                    ? Presence::kYes
                      : are_copies(narrow + perhaps_narrow) ? Presence::kAmbiguous
                                                            : Presence::kNo;
  out.table.notes.push_back(
      out.scores_are_ambiguous
          ? fmt::format(
                "cannot tell: up to {} tensors of BHT² per layer, but {} have the same size "
                "here; record a snapshot at another context",
                out.scores_per_layer, others)
          : fmt::format("{} tensors of BHT² per layer: {}", out.scores_per_layer,
                        reading_of(out.scores_per_layer)));
  if (model.layers < 4) {
    out.table.notes.emplace_back(
        "with fewer than four layers, temporaries may be taken for kept tensors");
  }
}

// Names one of three tensors that every step of the model holds, if the trace lacks it; empty:
// none. Three, as another model may share one: presets share the size of logits.
std::string missing_tensor(const std::vector<Wanted>& wanted) {
  for (const char* what : {"residual stream", "feed-forward weight", "projection weight"}) {
    const bool is_there = std::ranges::any_of(
        wanted, [&](const Wanted& w) { return w.what == std::string_view(what) && w.most > 0; });
    if (!is_there) return what;
  }
  return {};
}

void add_presence(Presence presence, const char* yes, const char* no, const char* ambiguous,
                  Fingerprint& out) {
  out.table.notes.emplace_back(presence == Presence::kYes  ? yes
                               : presence == Presence::kNo ? no
                                                           : ambiguous);
}

}  // namespace

Fingerprint fingerprint_of(const MemoryTrace& trace, const ModelConfig& model, BatchShape shape) {
  std::vector<Wanted> wanted = wanted_of(model, shape);
  count(trace, wanted);
  Fingerprint out;
  out.table = table_of_kinds(wanted, model);
  if (const std::string missing = missing_tensor(wanted); !missing.empty()) {
    out.is_mismatch = true;
    set_first(out.table, missing, kIsMissing, true);
    out.table.notes.push_back(
        fmt::format("mismatch: no block has the size of a {} of {} at batch {} and context {}; the "
                    "snapshot is of another model, batch or context, or of one of several ranks",
                    missing, model.name, shape.batch, shape.context));
    return out;
  }
  if (has_categories(trace)) {
    read_categories(trace, wanted, model, out);
    set_first(out.table, "scores", kKept, out.scores_per_layer);
  } else {
    read_sizes(wanted, model, out);
  }
  add_presence(out.mask, "a mask of T² elements is there",
               "no mask of T² elements: made inside a kernel, or none",
               "ambiguous: blocks of the size of a mask of T² elements are there, and something "
               "else has that size",
               out);
  add_presence(out.weight_copies, "weights have narrow copies: autocast, or stored so",
               "weights have no narrow copies",
               "ambiguous: blocks of the size of narrow weights are there, and something else has "
               "that size",
               out);
  return out;
}

}  // namespace tracestep
