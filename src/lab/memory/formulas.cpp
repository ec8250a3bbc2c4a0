#include "lab/memory/tables.h"

#include <fmt/ranges.h>

#include "analysis/saved_ledger.h"
#include "base/units.h"
#include "ir/op_def.h"
#include "lab/report/digits.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"
#include "ops/moment_codes.h"
#include "passes/memory_passes.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

struct Letters {
  std::int64_t b, t, c, f, h, l, v, p, s;  // s: bytes of an element

  explicit Letters(const RunSpec& step)
      : b(step.shape.batch),
        t(step.shape.context),
        c(step.model.d_model),
        f(step.model.d_ff),
        h(step.model.heads),
        l(step.model.layers),
        v(step.model.vocab),
        p(parameter_formula(step.model)),
        s(static_cast<std::int64_t>(size_of(step.precision.parameters))) {}
  std::int64_t btc() const { return b * t * c; }
  std::int64_t btf() const { return b * t * f; }
  std::int64_t bhtt() const { return b * h * t * t; }
};

// Returns the bytes of the first forward value of `count` elements whose path ends with `path`.
std::optional<std::int64_t> bytes_of_value(const Program& program, std::string_view path,
                                           std::int64_t count) {
  for (const Node& node : program.nodes) {
    if (node.origin().phase != Phase::kForward || !node.origin().path.ends_with(path)) continue;
    for (ValueId id : node.outputs) {
      if (program.type(id).count() == count) return program.type(id).bytes();
    }
  }
  return std::nullopt;
}

bool is_flash(const RunSpec& step) {
  return step.attention == AttentionForm::kFlash;
}

// Counts the tensors that each layer saves: multiples of BTC and BTF, and of BHT² and BHT in
// attention. Every layer also saves 2·BT, a number per row and norm.
struct SavedTerms {
  std::int64_t btc, btf, squares, rows_of_heads;

  explicit SavedTerms(const RunSpec& step)
      : btc(step.ops.keeps(Composite::kNorm) ? 8 : 10),
        btf(step.ops.keeps(Composite::kSwiglu) ? 3 : 5) {
    const bool is_whole = step.ops.keeps(Composite::kSoftmax);
    squares = is_flash(step) ? 0 : is_whole ? 1 : 2;
    rows_of_heads = is_flash(step) || !is_whole ? 1 : 0;
  }

  std::string formula() const {
    std::string out = fmt::format("({}·BTC + {}·BTF", btc, btf);
    if (squares > 0) out += squares > 1 ? fmt::format(" + {}·BHT²", squares) : " + BHT²";
    return out + (rows_of_heads > 0 ? " + 2·BT + BHT)·s" : " + 2·BT)·s");
  }
};

std::int64_t role_bytes(const Program& program, LeafKind kind) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    if (program.value(id).leaf == kind) out += program.type(id).bytes();
  }
  return out;
}

// Returns the vocabulary plus the rows that pad the end of the head's narrow copy (passes/pad.cpp).
std::int64_t padded_vocabulary(const Program& program, std::int64_t vocab) {
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.name.starts_with(kPaddingPrefix)) return vocab + leaf.type.shape[0];
  }
  return vocab;
}

struct SavedHere {
  std::int64_t total = 0, per_layer = 0;
};

// Adds up the bytes saved for backward. `per_layer`: those of the last layer, with its result (the
// norm after it reads that), not its input; the first layer would add the mask that all share.
SavedHere saved_of(const Program& program, std::int64_t layers) {
  SavedHere out;
  const std::string last = scope::layer(layers - 1);
  for (const LedgerItem& item : saved_ledger(program)) {
    out.total += item.bytes;
    const std::string block = block_of(program.node(item.producer).origin().path);
    if (block == last) out.per_layer += item.bytes;
  }
  return out;
}

class Rows {
 public:
  Rows(const MemoryCell& cell, Table& table)
      : run_(cell.run), step_(cell.run.spec.step), n_(step_), table_(table) {
    is_uniform_ = !step_.precision.autocast.has_value();
    saves_ = step_.mode != Mode::kInference;
    is_reference_ = variations_of(step_.model).empty();
  }

  void add_all() {
    if (trains_part(step_)) return peak();  // the forms are of a model that is trained whole
    sizes();
    static_bytes();
    if (step_.model.captured == nullptr) activations();
    if (saves_ && is_uniform_ && is_reference_) saved();
    if (step_.precision.autocast && is_reference_) weight_copy();
    peak();
  }

 private:
  void add(std::string what, std::string formula, std::string numbers, std::int64_t bytes,
           std::optional<std::int64_t> program, std::optional<std::int64_t> measured = {}) {
    Json difference;
    if (program && bytes > 0) {
      difference = 100.0 * (static_cast<double>(*program) / static_cast<double>(bytes) - 1.0);
    }
    table_.add_row({std::move(what), std::move(formula), std::move(numbers), bytes,
                    program ? Json(*program) : Json(), measured ? Json(*measured) : Json(),
                    difference});
  }

  void sizes() {
    if (!is_reference_) {
      add("weights", "s·P, P: the elements of all of them",
          fmt::format("{} × {}", n_.s, grouped(n_.p)), n_.s * n_.p,
          role_bytes(run_.program, LeafKind::kParameter), measured(Category::kParameter));
      return;
    }
    add("weights", "s·P, P = 2VC + L(4C² + 3CF + 2C) + C",
        fmt::format("{} × (2·{}·{} + {}·(4·{}² + 3·{}·{} + 2·{}) + {}) = {} × {}", n_.s, n_.v, n_.c,
                    n_.l, n_.c, n_.c, n_.f, n_.c, n_.c, n_.s, grouped(n_.p)),
        n_.s * n_.p, role_bytes(run_.program, LeafKind::kParameter),
        measured(Category::kParameter));
  }

  // Returns the bytes of AdamW's m and v together, for each parameter.
  std::int64_t state_bytes() const {
    switch (step_.optimizer.moments) {
      case Moments::kF32: return 8;
      case Moments::kBF16: return 4;
      case Moments::k8Bit: return 2;
    }
    return 0;
  }

  static constexpr const char* kScales = " + 8·(blocks of 128)";
  // Returns the number of blocks of moments in 8 bits, each with a float32 scale in m and in v.
  std::int64_t scaled_blocks() const {
    std::int64_t out = 0;
    if (step_.optimizer.moments != Moments::k8Bit) return out;
    for (ValueId id : run_.program.leaves) {
      const Value& leaf = run_.program.value(id);
      if (leaf.leaf == LeafKind::kParameter) out += coded_blocks(leaf.type.count());
    }
    return out;
  }

  void static_bytes() {
    if (step_.mode != Mode::kStep) return;
    const std::int64_t states = state_bytes(), kept = 8 + states, transient = 4 + states;
    const std::int64_t blocks = scaled_blocks();
    const char* const scales = blocks > 0 ? kScales : "";
    const std::string of_blocks = blocks > 0 ? fmt::format(" + 8 × {}", grouped(blocks)) : "";
    add("weights, gradients and AdamW kept all the time",
        fmt::format("{}·P{} (fp32: 4 + 4 + {})", kept, scales, states),
        fmt::format("{} × {}{}", kept, grouped(n_.p), of_blocks), kept * n_.p + 8 * blocks,
        std::nullopt);
    add("the same with transient gradients",
        fmt::format("{}·P{} (fp32: 4 + {})", transient, scales, states),
        fmt::format("{} × {}{}", transient, grouped(n_.p), of_blocks),
        transient * n_.p + 8 * blocks,
        role_bytes(run_.program, LeafKind::kParameter) +
            role_bytes(run_.program, LeafKind::kState));
  }

  void activations() {
    const std::string first = scope::layer(0);
    // Under autocast the element is the op's own: its size is read from the program.
    const auto value = [&](const char* what, const char* letters, std::string numbers,
                           const std::string& path, std::int64_t count) {
      const auto found = bytes_of_value(run_.program, path, count);
      const std::int64_t size =
          is_uniform_ || !found ? n_.s : *found / std::max<std::int64_t>(1, count);
      add(what, fmt::format("{}·s", letters), fmt::format("{} × {}", numbers, size), count * size,
          found);
    };
    value("one tensor of the residual stream", "BTC", fmt::format("{}·{}·{}", n_.b, n_.t, n_.c),
          std::string(scope::kEmbedding), n_.btc());
    value("attention weights of one layer", "BHT²", fmt::format("{}·{}·{}²", n_.b, n_.h, n_.t),
          scope::path({first, scope::kAttention, scope::kSoftmax}), n_.bhtt());
    value("feed-forward hidden of one layer", "BTF", fmt::format("{}·{}·{}", n_.b, n_.t, n_.f),
          scope::path({first, scope::kFeedForward, scope::of_activation(step_.model)}), n_.btf());
    const std::int64_t v = padded_vocabulary(run_.program, n_.v);
    value(v == n_.v ? "logits" : "logits, with padding of their rows", "BTV",
          fmt::format("{}·{}·{}", n_.b, n_.t, v), std::string(scope::kHead), n_.b * n_.t * v);
  }

  void saved() {
    const std::int64_t layer = saved_elements_per_layer(step_) * n_.s;
    const std::int64_t once = saved_bytes_once(step_, n_.s);
    const SavedHere found = saved_of(run_.program, n_.l);
    add("saved by one layer", SavedTerms(step_).formula(),
        fmt::format("BTC {}, BTF {}, BHT² {}", grouped(n_.btc()), grouped(n_.btf()),
                    grouped(n_.bhtt())),
        layer, found.per_layer);
    add("saved by the whole model", "L·layer + once",
        fmt::format("{} × {} + {}", n_.l, grouped(layer), grouped(once)), n_.l * layer + once,
        found.total);
    const std::int64_t course = course_elements_per_layer(step_.model, step_.shape) * n_.s;
    add("saved by the course's PyTorch code, all layers", "L·(10·BTC + 5·BTF + 2·BHT²)·s",
        fmt::format("{} × {}", n_.l, grouped(course)), n_.l * course, n_.l * found.per_layer);
  }

  void weight_copy() {
    const std::int64_t padding = padded_vocabulary(run_.program, n_.v) - n_.v;
    const std::int64_t multiplied = n_.p - (n_.v - padding) * n_.c - (2 * n_.l + 1) * n_.c;
    std::int64_t copies = 0;
    for (const MappedBuffer& b : run_.map.buffers) {
      if (b.category == Category::kWeightCast) copies += b.bytes;
    }
    add("narrow copies of all weights that are multiplied", "2·(L(4C² + 3CF) + VC)",
        fmt::format("2 × {}", multiplied), 2 * multiplied, copies);
  }

  void peak() {
    const bool is_usual =
        step_.mode == Mode::kStep && host_bytes(run_.program) == 0 && !trains_part(step_);
    if (is_usual && is_uniform_ && n_.s == 4) {
      const std::int64_t saved = saved_of(run_.program, n_.l).total;
      const std::int64_t transient = 4 + state_bytes(), kept = transient + 4;
      const std::int64_t scales = 8 * scaled_blocks();
      const std::int64_t a = transient * n_.p + saved, b = kept * n_.p;
      add("peak of a step, without temporaries",
          fmt::format("max({}·P + saved, {}·P){}", transient, kept, scales > 0 ? kScales : ""),
          fmt::format("max({} + {}, {}){}", transient * n_.p, saved, b,
                      scales > 0 ? fmt::format(" + {}", scales) : ""),
          std::max(a, b) + scales, run_.map.peak_bytes, measured_peak());
      return;
    }
    add("peak", "by the program", "every buffer by its first and last reader", run_.map.peak_bytes,
        run_.map.peak_bytes, measured_peak());
  }

  std::optional<std::int64_t> measured_peak() const {
    if (!run_.measured || run_.status != Status::kOk) return std::nullopt;
    return run_.peak_bytes;
  }

  std::optional<std::int64_t> measured(Category category) const {
    if (!run_.measured || run_.status != Status::kOk) return std::nullopt;
    std::int64_t out = 0;
    for (const Holding& h : run_.holdings) {
      const MappedBuffer* b = run_.buffer(h);
      if (b != nullptr && b->category == category && b->first == kNoNode) out += h.requested_bytes;
    }
    return out;
  }

  const MemoryRun& run_;
  const RunSpec& step_;
  Letters n_;
  Table& table_;
  bool is_uniform_, saves_, is_reference_;
};

}  // namespace

std::int64_t saved_elements_per_layer(const RunSpec& step) {
  require_reference(step.model, "model", "the formula of what a layer saves is");
  const Letters n(step);
  const SavedTerms terms(step);
  return terms.btc * n.btc() + terms.btf * n.btf() + terms.squares * n.bhtt() +
         terms.rows_of_heads * n.b * n.h * n.t + 2 * n.b * n.t;
}

std::int64_t saved_bytes_once(const RunSpec& step, std::int64_t element_bytes) {
  const Letters n(step);
  const std::int64_t rows = n.b * n.t, tables = n.t * step.model.head_width();
  const std::int64_t streams = step.ops.keeps(Composite::kNorm) ? 2 : 3;
  const std::int64_t elements = streams * n.btc() + rows + rows * n.v + rows + tables;
  const bool has_mask = !step.ops.keeps(Composite::kSoftmax) && !is_flash(step);
  return elements * element_bytes + (has_mask ? n.t * n.t : 0);
}

std::int64_t course_elements_per_layer(const ModelConfig& model, BatchShape shape, int scores) {
  require_reference(model, "model", "the course's code is");
  const Letters n({.model = model, .shape = shape});
  return 10 * n.btc() + 5 * n.btf() + scores * n.bhtt();
}

Table formula_table(const MemoryCell& cell) {
  Table table{.name = "formulas", .title = "Formulas with this cell's numbers"};
  table.columns = {col::quantity,
                   col::formula,
                   col::numbers,
                   col::bytes.titled("by the formula"),
                   bytes_column("program_bytes", "by the program"),
                   col::measured_bytes,
                   real_column("difference_percent", "program vs formula", "%", 2)};
  Rows(cell, table).add_all();
  const ModelConfig& model = cell.run.spec.step.model;
  if (const std::vector<std::string> varied = variations_of(model); !varied.empty()) {
    table.notes.push_back(
        fmt::format("formulas of what a layer saves are left out: they are of the reference "
                    "Transformer, from which {} differs in {}",
                    model.name, fmt::join(varied, ", ")));
  }
  table.notes.push_back(
      "s is the bytes of an element; letters as in docs/glossary.md; formulas count elements, so "
      "one that forgets s is wrong by a factor of four");
  return table;
}

}  // namespace tracestep
