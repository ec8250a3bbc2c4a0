#include "lab/study/trace_fingerprint.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/report/unpickle.h"
#include "lab/study/columns.h"

namespace tracestep {
namespace {

constexpr std::int64_t kRounding = 512;  // of blocks, where a trace has no requested sizes

// --- reading ------------------------------------------------------------------------------------

// The two forms of a file, by the few questions that are asked of them.
struct FromPickle {
  using Node = const PickleValue*;
  static Node find(Node n, std::string_view key) { return n->find(key); }
  static std::vector<Node> items(Node n) {
    std::vector<Node> out;
    for (const PickleRef& item : n->items()) out.push_back(item.get());
    return out;
  }
  static std::int64_t integer(Node n) { return n->as_int(); }
  static std::string_view text(Node n) { return n->as_text(); }
};

struct FromJson {
  using Node = const Json*;
  static Node find(Node n, std::string_view key) { return n->is_object() ? n->find(key) : nullptr; }
  static std::vector<Node> items(Node n) {
    std::vector<Node> out;
    if (!n->is_array()) return out;
    for (const Json& item : n->items()) out.push_back(&item);
    return out;
  }
  static std::int64_t integer(Node n) { return n->is_int() ? n->as_int() : 0; }
  static std::string_view text(Node n) {
    if (!n->is_string()) return {};
    return n->as_string();
  }
};

template <class Form>
class TraceReader {
 public:
  using Node = typename Form::Node;

  MemoryTrace read(Node root, const std::string& where) {
    Node traces = Form::find(root, "device_traces");
    Node segments = Form::find(root, "segments");
    if (traces == nullptr || segments == nullptr) {
      fail_input(where, "this is no memory snapshot: it has no 'segments' and 'device_traces'");
    }
    for (Node device : Form::items(traces)) {
      if (out_.events.empty()) read_events(device);  // the first device with a trace
    }
    for (Node segment : Form::items(segments)) read_blocks(segment);
    if (out_.events.empty() && out_.there_before.empty()) {
      fail_input(where, "the snapshot holds no events and no blocks");
    }
    return std::move(out_);
  }

 private:
  std::int64_t number(Node n, std::string_view key) const {
    Node found = Form::find(n, key);
    return found == nullptr ? 0 : Form::integer(found);
  }

  void read_events(Node device) {
    for (Node event : Form::items(device)) {
      Node action = Form::find(event, "action");
      if (action == nullptr) continue;
      const std::string_view name = Form::text(action);
      const std::int64_t address = number(event, "addr"), bytes = number(event, "size");
      if (name == "alloc") {
        out_.events.push_back({true, address, bytes});
        live_.insert(address);
      } else if (name == "free_completed" || name == "free") {
        out_.events.push_back({false, address, bytes});
        if (live_.erase(address) == 0) out_.there_before.push_back(bytes);
      }
    }
  }

  // Blocks that are active at the end and that no event made.
  void read_blocks(Node segment) {
    Node blocks = Form::find(segment, "blocks");
    if (blocks == nullptr) return;
    std::int64_t address = number(segment, "address");
    for (Node block : Form::items(blocks)) {
      Node state = Form::find(block, "state");
      const std::int64_t size = number(block, "size");
      if (state != nullptr && Form::text(state) == "active_allocated" && !live_.contains(address)) {
        const std::int64_t requested = number(block, "requested_size");
        out_.there_before.push_back(requested > 0 ? requested : size);
      }
      address += size;
    }
  }

  MemoryTrace out_;
  std::set<std::int64_t> live_;
};

// --- counting -----------------------------------------------------------------------------------

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

MemoryTrace read_trace(std::string_view bytes, const std::string& where) {
  if (!bytes.empty() && bytes[0] == '{') {
    const Json root = Json::parse(bytes, where);
    return TraceReader<FromJson>().read(&root, where);
  }
  const PickleRef root = unpickle(bytes, where);
  return TraceReader<FromPickle>().read(root.get(), where);
}

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
