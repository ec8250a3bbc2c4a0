// OpDef: everything the project knows about an op, in one record. Type inference, autograd,
// autocast, cost model, planner, documentation and tests read it; no pass keeps a list of ops.
// The records themselves live in ops/; users register ops of their own the same way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "ir/program.h"

namespace tracestep {

class Builder;

// A handle to a value under construction; cheap to copy. Default: "no value".
struct Val {
  Builder* builder = nullptr;
  ValueId id = kNoValue;

  explicit operator bool() const { return id != kNoValue; }
  Type type() const;  // a copy: adding nodes moves the values
  Shape shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  std::int64_t dim(int i) const { return i < 0 ? shape().back(-i - 1) : shape()[i]; }
};

// The kinds of kernels that run ops; tables of times have a row for each.
enum class KernelClass : std::uint8_t {
  kGemm,
  kElementwise,
  kReduction,
  kAttention,
  kGather,
  kOptimizer,
  kCopy,
  kGenerator,
  kView,
  kCollective,
  kFused,
};
TRACESTEP_WORDS(KernelClass, "matrix product", "elementwise", "reduction", "attention", "gather",
                "optimizer", "copy", "generator", "view", "collective", "fused");

// The dtype in which mixed precision runs an op.
enum class PrecisionClass : std::uint8_t {
  kLow,      // The low dtype (matrix products).
  kFull,     // float32; low operands are widened (norms, softmax, losses, optimizer).
  kPromote,  // The widest dtype among the inputs.
  kKeep,     // The dtypes of the operands (movement).
};
TRACESTEP_WORDS(PrecisionClass, "low", "full", "promote", "keep");

// How a fused kernel may compute the op; the pass `fuse` reads it. Views need no entry.
enum class Fusion : std::uint8_t {
  kNone,  // It cannot be part of a fused kernel.
  // Element i of every result depends on elements i of the operands, by a scalar functor.
  kElementwise,
  // Pairs 2j and 2j+1 of the last axis are computed by a scalar functor, with tables [T, D/2].
  kPairs,
  // Each row of the last axis is computed separately: by a reduction, or by the op's decomposition.
  kRows,
};
TRACESTEP_WORDS(Fusion, "none", "elementwise", "pairs", "rows");

// Which composite of a model the op is a kernel of. Programs keep or expand all ops of a composite
// together (run/granularity.h), so that forward and gradient agree.
enum class Composite : std::uint8_t {
  kOther,  // None of these: an op of a user's own.
  kNorm,
  kSwiglu,
  kRope,
  kSoftmax,
  kLoss,
  kOptimizer,
};
TRACESTEP_WORDS(Composite, "other", "norm", "swiglu", "rope", "softmax", "loss", "optimizer");
inline constexpr Composite kNamedComposites[] = {Composite::kNorm, Composite::kSwiglu,
                                                 Composite::kRope, Composite::kSoftmax,
                                                 Composite::kLoss, Composite::kOptimizer};

struct AttrDef {
  std::string name;
  AttrKind kind;
  std::optional<AttrValue> fallback;  // The default; nullopt: the attribute must be given.
  std::string doc;
};

// A call as type rules and cost formulas get it. While types are inferred, `outputs` is empty.
struct OpCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const Type> inputs;
  std::span<const Type> outputs;
};

// A call as gradient rules, decompositions and identities get it. Gradient rules and decompositions
// add nodes to `builder`.
struct OpExpansion {
  Builder& builder;
  const Attrs& attrs;
  std::span<const Val> inputs;
  std::span<const Val> outputs;  // For gradient rules: the results of forward.
  // For gradient rules: the gradients of the results; "no value" where nothing flows back.
  std::span<const Val> output_grads;
  std::vector<bool> wanted;  // For gradient rules: which inputs need a gradient.
};

struct Donation {
  int output;
  int input;
};

// Another way to compute an op from other ops, which the pass `choose` selects by name.
struct OpForm {
  std::string name;
  std::function<std::vector<Val>(const OpExpansion&)> expand;
};

// A call that the pass `join` merges with others into one.
struct JoinedCall {
  std::vector<Val> inputs;
  // The state that holds the first result in a narrower dtype; "no value": there is none.
  Val shadow;
};

// How several calls that differ only in their tensors become one call.
struct JoinRule {
  std::string op;  // the op of the merged call
  // Builds the merged call. Returns the results of each original call, followed by the new value of
  // its shadow if it has one. All calls have the same attributes and rank-0 operands, and either
  // all of them have a shadow or none has.
  std::function<std::vector<std::vector<Val>>(Builder&, const Attrs&, std::span<const JoinedCall>)>
      build;
};

// A product of matrices: which axes of operand 0 and operand 1 become the rows and the columns of
// the result, its last two axes, and which are summed over.
struct ProductAxes {
  int rows = 0, columns = 0;
  int summed[2] = {};  // The axes that are summed over, of operand 0 and of operand 1.

  int kept(int input) const { return input == 0 ? rows : columns; }
};

struct OpDef {
  std::string name = {};
  std::string doc = {};                   // one line
  std::string source = {};                // paper, section or equation; empty for arithmetic
  std::vector<std::string> inputs = {};   // operand names; "xs..." as the last: one or more
  std::vector<std::string> outputs = {};  // result names
  std::vector<AttrDef> attrs = {};
  KernelClass kernel_class = KernelClass::kElementwise;
  PrecisionClass precision_class = PrecisionClass::kPromote;
  Fusion fusion = Fusion::kNone;
  Composite composite = Composite::kOther;  // Only read if the op has a decomposition.

  operator About() const { return {About::Kind::kOp, name}; }

  // Result types; throws Error{kUsage, "[op]"} when the operands do not fit.
  std::function<std::vector<Type>(const OpCall&)> infer = {};
  // Movement ops: the result as a view of input 0, or nullopt when it needs a copy first.
  std::function<std::optional<Layout>(const OpCall&, const Layout& input)> view = {};
  // True if the kernels take an input with these strides; `materialize` copies it otherwise.
  std::function<bool(int input, const Type&, const Strides&)> accepts = {};
  // True if the kernels write a result with these strides; empty: results are dense. It decides
  // whether the result can be a part of an assembly.
  std::function<bool(int output, const Type&, const Strides&)> writes = {};
  // Only assemblies have this: where operand `input` lies in the dense result. An assembly launches
  // nothing, since the nodes that make its operands write them there.
  std::function<Layout(const OpCall&, int input)> part = {};
  // Gradients of the inputs ("no value" where none flows); empty: not differentiable.
  std::function<std::vector<Val>(const OpExpansion&)> gradient = {};
  // Computes the same results by simpler ops; empty: the op is primitive.
  std::function<std::vector<Val>(const OpExpansion&)> decompose = {};
  // Other ways to compute the op, which the user can choose by name (pass `choose`).
  std::vector<OpForm> forms = {};
  // For a call that changes nothing (a reshape to the same shape), the operand that `simplify` puts
  // in its place; otherwise "no value". Empty: no call of this op is an identity.
  std::function<Val(const OpExpansion&)> identity = {};
  // Floating-point operations (multiply and add count one each); empty: none.
  std::function<std::int64_t(const OpCall&)> flops = {};
  // Bytes that are read; empty: every distinct input element is read once.
  std::function<std::int64_t(const OpCall&)> bytes_read = {};
  // Bytes that are written; empty: every result is written once.
  std::function<std::int64_t(const OpCall&)> bytes_written = {};

  // For products of matrices: the axes that `merge` needs to know to join products.
  std::function<ProductAxes(const OpCall&)> product = {};
  bool is_sum = false;  // the result is the sum of the operands

  // How `join` merges many calls into one launch; none: calls of this op are never merged.
  std::optional<JoinRule> join = {};
  // Kernels widen narrower operands to float32 themselves: passing bfloat16 or float16 gives the
  // same bits as passing its float32 copy.
  bool widens = false;
  // The result is the operand in another dtype, rounded to it, and nothing else.
  bool only_converts = false;

  // Outputs that may take an input's storage when no later node reads that input.
  std::vector<Donation> donates = {};
  // Returns the donations of ops whose operands come in groups; empty: `donates` is used.
  std::function<std::vector<Donation>(const Attrs&, std::size_t inputs)> donates_in_groups = {};
  // True: computing the op again is cheaper than keeping its results (elementwise ops, casts,
  // generators).
  bool cheap_to_recompute = false;
  // True: it is decomposed unless the device explicitly has a kernel for it.
  bool always_decompose = false;
  // True: a kernel of its own only pays on GPUs; a CPU runs its decomposition.
  bool only_on_gpus = false;
  // True: only an explicit choice brings the op in (`--attention flash`), so primitive granularity
  // does not decompose it if the device has a kernel for it.
  bool stays_whole = false;

  bool is_view() const { return static_cast<bool>(view); }
  bool is_assembly() const { return static_cast<bool>(part); }
  // True if a device needs a kernel to run calls of the op.
  bool has_launches() const { return !is_view() && !is_assembly(); }
  bool is_variadic() const { return !inputs.empty() && inputs.back().ends_with("..."); }
  const AttrDef* find_attr(std::string_view attr) const;
  const OpForm* find_form(std::string_view form) const;
};

// True when all results of the node are views: it launches nothing and owns no bytes.
bool makes_views(const Program& program, const Node& node);
// True when the node launches a kernel: its results are neither views nor assembled.
bool launches(const Program& program, const Node& node);

// Returns the outputs of the node that may take an input's storage, each with that input.
std::vector<Donation> donations_of(const Node& node);

// Adds an op; the reference stays valid. Throws Error{kUsage} when the name is taken or the
// record has neither type rule nor name.
const OpDef& register_op(OpDef op);
// Returns the op of this name; throws Error{kUsage}, naming the closest op, if there is none.
const OpDef& find_op(std::string_view name);
const OpDef* find_op_or_null(std::string_view name);
// Returns all registered ops, in order of registration.
std::vector<const OpDef*> all_ops();

}  // namespace tracestep
