// OpDef: everything the project knows about an op, in one record. Type inference, autograd,
// autocast, cost model, planner, documentation and tests read it; no pass keeps a list of ops.
// The records themselves live in ops/; a program's own ops are registered the same way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// What kind of kernel runs the op: the rows of a time table.
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
std::string_view name_of(KernelClass kernel_class);

// What mixed precision does with the op.
enum class PrecisionClass : std::uint8_t {
  kLow,      // run in the low dtype (matrix products)
  kFull,     // run in float32 (norms, softmax, losses, optimizer)
  kPromote,  // run in the widest input dtype
  kKeep,     // takes any dtype as it is (movement)
};
std::string_view name_of(PrecisionClass precision_class);

// How a fused kernel may compute the op: what `fuse` joins. Views are movement and need no entry.
enum class Fusion : std::uint8_t {
  kNone,         // only by a kernel of its own
  kElementwise,  // element i of every result from elements i of the operands, by a scalar functor
  kPairs,        // the same for neighbours 2j and 2j+1 of the last axis, with tables [T, D/2]
  kRows,         // rows along the last axis, each by itself: by its decomposition, or a reduction
};
std::string_view name_of(Fusion fusion);

struct AttrDef {
  std::string name;
  AttrKind kind;
  std::optional<AttrValue> fallback;  // nullopt: must be given
  std::string doc;
};

// A call as type rules and cost formulas see it. `outputs` is empty while types are inferred.
struct OpCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const Type> inputs;
  std::span<const Type> outputs;
};

// A call as gradient rules, decompositions and identities see it: the first two build IR through
// the values' builder.
struct OpExpansion {
  Builder& builder;
  const Attrs& attrs;
  std::span<const Val> inputs;
  std::span<const Val> outputs;       // gradient rules: the forward results
  std::span<const Val> output_grads;  // gradient rules: "no value" where nothing flows back
  std::vector<bool> wanted;           // gradient rules: which inputs need a gradient
};

struct Donation {
  int output;
  int input;
};

// Another way to compute an op, from other ops: chosen by name, by the pass `choose`.
struct OpForm {
  std::string name;
  std::function<std::vector<Val>(const OpExpansion&)> expand;
};

// One of the calls that a single call is to stand for.
struct JoinedCall {
  std::vector<Val> inputs;
  Val shadow;  // a state that gets the first result in its own narrower dtype; "no value": none
};

// How calls that differ in their tensors alone become one call.
struct JoinRule {
  std::string op;  // of that call
  // The results of each call, and what its shadow becomes behind them. All calls have the same
  // attributes and rank-0 operands, and all or none have a shadow.
  std::function<std::vector<std::vector<Val>>(Builder&, const Attrs&, std::span<const JoinedCall>)>
      build;
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

  // Result types; throws Error{kUsage, "[op]"} when the operands do not fit.
  std::function<std::vector<Type>(const OpCall&)> infer = {};
  // Movement ops: the result as a view of input 0, or nullopt when it needs a copy first.
  std::function<std::optional<Layout>(const OpCall&, const Layout& input)> view = {};
  // Which strides the kernels take for an input; the `materialize` pass copies others.
  std::function<bool(int input, const Type&, const Strides&)> accepts = {};
  // Gradients of the inputs ("no value" where none flows); empty: not differentiable.
  std::function<std::vector<Val>(const OpExpansion&)> gradient = {};
  // The same results from simpler ops; empty: the op is primitive.
  std::function<std::vector<Val>(const OpExpansion&)> decompose = {};
  // Other forms of the op that a person may ask for instead of the decomposition.
  std::vector<OpForm> forms = {};
  // The operand that a call repeats when it changes nothing, else "no value": what `simplify` puts
  // in its place. Empty: every call changes something.
  std::function<Val(const OpExpansion&)> identity = {};
  // Floating-point operations (multiply and add count one each); empty: none.
  std::function<std::int64_t(const OpCall&)> flops = {};
  // Bytes read beyond / instead of "every distinct input element once"; empty: that.
  std::function<std::int64_t(const OpCall&)> bytes_read = {};

  // One launch for many calls: what `join` puts in their place; none: each call by itself.
  std::optional<JoinRule> join = {};
  // Reads every operand as float32 at least: a narrower one gives the bits that its widened copy
  // would.
  bool widens = false;

  // Outputs that may take an input's storage when nobody reads that input afterwards.
  std::vector<Donation> donates = {};
  // The same for a call whose operands come in groups; empty: `donates` says it.
  std::function<std::vector<Donation>(const Attrs&, std::size_t inputs)> donates_in_groups = {};
  // Cheaper to compute again than to keep (elementwise, casts, generators).
  bool cheap_to_recompute = false;
  // Decomposed unless a device says that it has a kernel.
  bool always_decompose = false;
  // Chosen explicitly (`--attention flash`), so primitive granularity does not take it apart where
  // the device has a kernel for it.
  bool stays_whole = false;

  bool is_view() const { return static_cast<bool>(view); }
  bool is_variadic() const { return !inputs.empty() && inputs.back().ends_with("..."); }
  const AttrDef* find_attr(std::string_view attr) const;
  const OpForm* find_form(std::string_view form) const;
};

// True when the node only makes views: it launches nothing and owns no bytes.
bool makes_views(const Program& program, const Node& node);

// Which outputs of the node may take which input's storage.
std::vector<Donation> donations_of(const Node& node);

// Adds an op; the reference stays valid. Throws Error{kUsage} when the name is taken or the
// record has neither type rule nor name.
const OpDef& register_op(OpDef op);
// Error{kUsage} with the closest name when there is none.
const OpDef& find_op(std::string_view name);
const OpDef* find_op_or_null(std::string_view name);
// In order of registration.
std::vector<const OpDef*> all_ops();

}  // namespace tracestep
