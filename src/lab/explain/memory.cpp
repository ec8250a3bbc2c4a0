// Topics on memory and attention: programs are planned, nothing runs.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/explain/topics.h"
#include "lab/memory/accounting.h"
#include "lab/memory/formulas.h"
#include "lab/memory/saved.h"

namespace tracestep {
namespace {

struct Letters {
  double b, t, c, f, h, d, l, v, p;

  explicit Letters(const ExplainInput& input)
      : b(static_cast<double>(input.shape.batch)),
        t(static_cast<double>(input.shape.context)),
        c(static_cast<double>(input.model.d_model)),
        f(static_cast<double>(input.model.d_ff)),
        h(static_cast<double>(input.model.heads)),
        d(static_cast<double>(input.model.head_width())),
        l(static_cast<double>(input.model.layers)),
        v(static_cast<double>(input.model.vocab)),
        p(static_cast<double>(parameter_formula(input.model))) {}
  double scores() const { return b * h * t * t; }
};

StepSpec spec_of(const ExplainInput& input, Mode mode, Granularity ops = Granularity::kFused) {
  return {.model = input.model, .shape = input.shape, .mode = mode, .ops = ops};
}

MemoryCell cell_of(const StepSpec& spec) {
  return {.precision = "fp32", .run = predict_memory(spec, {})};
}

double peak_of(const StepSpec& spec) {
  return static_cast<double>(predict_memory(spec, {}).map.peak_bytes);
}

std::string sizes(const ExplainInput& input) {
  return fmt::format("{} at B = {}, T = {}, fp32", input.model.name, input.shape.batch,
                     input.shape.context);
}

double saved_layer(const ExplainInput& input, Granularity ops) {
  return 4 * static_cast<double>(saved_elements_per_layer(spec_of(input, Mode::kStep, ops)));
}

}  // namespace

std::vector<Table> explain_peak_memory(const ExplainInput& input) {
  const Letters n(input);
  Worked out;
  out.bytes("weights", "4·P", fmt::format("4·{:.0f}", n.p), 4 * n.p);
  out.bytes("gradients", "4·P", "", 4 * n.p);
  out.bytes("AdamW's m and v", "8·P", "", 8 * n.p);
  for (Mode mode : kAllModes) {
    out.bytes(fmt::format("peak of {}", name_of(mode)), "by the program", "",
              peak_of(spec_of(input, mode)));
  }
  out.note(sizes(input));
  return {out.table(), category_table(cell_of(spec_of(input, Mode::kStep)))};
}

std::vector<Table> explain_saved_for_backward(const ExplainInput& input) {
  const Letters n(input);
  Worked out;
  const std::string terms = fmt::format("BTC {:.0f}, BTF {:.0f}, BHT² {:.0f}", n.b * n.t * n.c,
                                        n.b * n.t * n.f, n.scores());
  out.bytes("one layer, composite ops", "4·(8·BTC + 3·BTF + BHT² + 2·BT)", terms,
            saved_layer(input, Granularity::kFused));
  out.bytes("one layer, op by op", "4·(10·BTC + 5·BTF + 2·BHT² + 2·BT + BHT)", terms,
            saved_layer(input, Granularity::kPrimitive));
  out.bytes("one layer of plain PyTorch code", "4·(10·BTC + 5·BTF + 2·BHT²)", terms,
            4 * static_cast<double>(course_elements_per_layer(input.model, input.shape)));
  out.bytes("all layers, composite ops", "L·layer", fmt::format("{:.0f} layers", n.l),
            n.l * saved_layer(input, Granularity::kFused));
  out.note(sizes(input));
  return {out.table(), saved_by_op_table(cell_of(spec_of(input, Mode::kForwardBackward)))};
}

std::vector<Table> explain_residual_stream(const ExplainInput& input) {
  const Letters n(input);
  Worked out;
  out.bytes("one tensor", "4·BTC", fmt::format("4·{}·{}·{}", n.b, n.t, n.c), 4 * n.b * n.t * n.c);
  out.bytes("scores of one layer", "4·BHT²", fmt::format("4·{}·{}·{}²", n.b, n.h, n.t),
            4 * n.scores());
  out.bytes("hidden of one feed-forward", "4·BTF", fmt::format("4·{}·{}·{}", n.b, n.t, n.f),
            4 * n.b * n.t * n.f);
  out.bytes("one matrix of a feed-forward", "4·CF", fmt::format("4·{}·{}", n.c, n.f),
            4 * n.c * n.f);
  out.bytes("logits", "4·BTV", fmt::format("4·{}·{}·{}", n.b, n.t, n.v), 4 * n.b * n.t * n.v);
  out.ratio("context from which scores are larger than the stream", "T = D", "", n.d);
  out.note(sizes(input));
  return {out.table()};
}

std::vector<Table> explain_adamw(const ExplainInput& input) {
  const Letters n(input);
  const OptimizerOptions o;
  Worked out;
  out.ratio("β₁", "", "", o.beta1).ratio("β₂", "", "", o.beta2).ratio("ε", "", "", o.eps);
  const double gradient = 0.01;
  double m = 0, v = 0;
  for (int t = 1; t <= 2; ++t) {
    m = o.beta1 * m + (1 - o.beta1) * gradient;
    v = o.beta2 * v + (1 - o.beta2) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    out.ratio(fmt::format("step {}: m", t), "β₁·m + (1 − β₁)·g", fmt::format("g = {}", gradient),
              m);
    out.ratio(fmt::format("step {}: v", t), "β₂·v + (1 − β₂)·g²", "", v);
    out.ratio(fmt::format("step {}: update over the learning rate", t),
              "(m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)", "", m_hat / (std::sqrt(v_hat) + o.eps));
    out.ratio(fmt::format("step {}: without it", t), "m / (√v + ε)", "",
              m / (std::sqrt(v) + o.eps));
  }
  out.bytes("states", "8·P", fmt::format("8·{:.0f}", n.p), 8 * n.p);
  out.bytes("moved by one update", "read w, g, m, v; write w, m, v: 28·P",
            fmt::format("28·{:.0f}", n.p), 28 * n.p);
  out.note("decay is taken from the weight itself, α·λ·w, and not added to the gradient");
  return {out.table()};
}

std::vector<Table> explain_oom(const ExplainInput& input) {
  Worked out;
  for (int graphs : {1, 2}) {
    const AccountedPeak peak =
        accounted_peak(spec_of(input, Mode::kForward), {.live_graphs = graphs});
    out.bytes(fmt::format("forward of plain PyTorch code, {} graph{} alive", graphs,
                          graphs == 1 ? "" : "s"),
              "4·P + graphs·G", peak.formula, static_cast<double>(peak.bytes));
  }
  for (Mode mode : {Mode::kForwardBackward, Mode::kStep}) {
    for (bool kept : {false, true}) {
      const AccountedPeak peak = accounted_peak(spec_of(input, mode), {.kept_gradients = kept});
      out.bytes(fmt::format("{}, gradients {}", name_of(mode), kept ? "kept" : "set to none"),
                mode == Mode::kStep ? (kept ? "16·P + G" : "max(12·P + G, 16·P)")
                                    : (kept ? "8·P + G" : "max(4·P + G, 8·P)"),
                peak.formula, static_cast<double>(peak.bytes));
    }
  }
  const double step = peak_of(spec_of(input, Mode::kStep));
  out.bytes("a step of ours, composite ops", "by the program", "", step);
  ExplainInput half = input;
  half.shape.batch = std::max<std::int64_t>(1, input.shape.batch / 2);
  out.bytes(fmt::format("the same at batch {}", half.shape.batch), "by the program", "",
            peak_of(spec_of(half, Mode::kStep)));
  out.note(sizes(input));
  out.note(
      "tracestep memory --predict --memory-limit SIZE names the holders and the smallest change "
      "that fits");
  return {out.table()};
}

std::vector<Table> explain_checkpointing(const ExplainInput& input) {
  const Letters n(input);
  const double inside = saved_layer(input, Granularity::kFused), stream = 4 * n.b * n.t * n.c;
  Worked out;
  out.bytes("one layer's inside", "R", "composite ops", inside);
  out.bytes("one input of a group", "4·BTC", "", stream);
  out.bytes("nothing recomputed", "L·R", fmt::format("{:.0f}·R", n.l), n.l * inside);
  double best_bytes = 0, best = 0;
  for (double group = 1; group <= n.l; group *= 2) {
    const double bytes = std::ceil(n.l / group) * stream + group * inside;
    out.bytes(fmt::format("groups of {:.0f}", group), "(L/g)·4BTC + g·R",
              fmt::format("{:.0f} inputs + {:.0f} insides", std::ceil(n.l / group), group), bytes);
    if (best == 0 || bytes < best_bytes) {
      best = group;
      best_bytes = bytes;
    }
  }
  out.ratio("the best of these", "g", "", best);
  out.ratio("the best group if any size would do", "√(L·4BTC / R)", "below 1: one layer each",
            std::sqrt(n.l * stream / inside));
  const double forward = forward_flops(input.model, n.b, n.t);
  out.ratio("FLOPs of a step with one more forward", "4/3",
            fmt::format("{:.4g} / {:.4g}", 4 * forward, 3 * forward), 4.0 / 3.0);
  out.note(sizes(input));
  out.note("formulas alone: programs here keep everything that backward reads");
  return {out.table()};
}

std::vector<Table> explain_attention_memory(const ExplainInput& input) {
  const Letters n(input);
  Worked out;
  const double one = 4 * n.scores();
  for (int kept : {1, 2, 3}) {
    out.bytes(fmt::format("{} kept per layer: {}", kept,
                          kept == 1   ? "weights"
                          : kept == 2 ? "exp and weights"
                                      : "scores, exp and weights"),
              fmt::format("{}·4·BHT²", kept), fmt::format("{}·4·{}·{}·{}²", kept, n.b, n.h, n.t),
              kept * one);
  }
  out.bytes("all layers, weights alone", "L·4·BHT²", fmt::format("{:.0f}·…", n.l), n.l * one);
  out.bytes("at twice the context", "L·4·BH(2T)²", "", 4 * n.l * one);
  out.bytes("a causal mask of one byte a score", "T²", fmt::format("{}²", n.t), n.t * n.t);
  out.bytes("q, k, v and the result of one layer", "4·4·BTC", "", 16 * n.b * n.t * n.c);
  out.ratio("bytes over T² of one layer, one kept", "4·BH", fmt::format("4·{}·{}", n.b, n.h),
            4 * n.b * n.h);
  out.bytes("the well-known case", "8·16384²·4", "B = 8, one head, T = 16384",
            8.0 * 16384 * 16384 * 4);
  out.note(sizes(input));
  return {out.table()};
}

std::vector<Table> explain_flash_attention(const ExplainInput& input) {
  const Letters n(input);
  Worked out;
  constexpr double kTile = 64;
  out.bytes("kept by plain attention, one layer", "4·BHT²", fmt::format("4·{:.0f}", n.scores()),
            4 * n.scores());
  out.bytes("kept in tiles: log-sum-exp per row", "4·BHT", fmt::format("4·{}·{}·{}", n.b, n.h, n.t),
            4 * n.b * n.h * n.t);
  out.ratio("ratio of the two", "T", "", n.t);
  out.bytes("one tile of scores", "4·Bq·Bk", fmt::format("4·{:.0f}·{:.0f}", kTile, kTile),
            4 * kTile * kTile);
  out.flops("products of forward", "4·BHT²D", "", 4 * n.scores() * n.d);
  out.flops("of backward, plain", "8·BHT²D", "four products", 8 * n.scores() * n.d);
  out.flops("of backward in tiles", "10·BHT²D", "the scores once more", 10 * n.scores() * n.d);
  // The identity itself, on three scores that come one by one.
  const double x[] = {1.0, 3.0, 2.0};
  double m = -HUGE_VAL, sum = 0;
  for (double v : x) {
    const double next = std::max(m, v);
    sum = sum * std::exp(m - next) + std::exp(v - next);
    m = next;
    out.ratio(fmt::format("after a score of {}", v), "l ← l·e^(m − m') + e^(x − m')",
              fmt::format("m' = {}", m), sum);
  }
  const double all = std::exp(x[0] - m) + std::exp(x[1] - m) + std::exp(x[2] - m);
  out.ratio("all at once", "Σ e^(x − m)", "", all);
  out.ratio("log-sum-exp, which is kept", "m + ln l", "", m + std::log(sum));
  out.note("the gradient needs no row of weights either: dS = P∘(dP − rowsum(O∘dO))");
  out.note(
      "in plain code, tile by tile: src/backends/reference/flash_attention.cpp; the kernels: "
      "docs/flash-attention.md; to run it: --attention flash");
  out.note(sizes(input));
  return {out.table()};
}

}  // namespace tracestep
