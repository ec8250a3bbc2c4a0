// Program: a training step as data. Typed SSA over values with explicit layouts, leaves for what
// lives outside the step (inputs, parameters, states, constants), and explicit updates of those
// leaves. Plain structs, made by the Builder (ir/builder.h) alone; a pass returns a new program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "base/enum_words.h"
#include "base/shared_vector.h"
#include "ir/attrs.h"

namespace tracestep {

using ValueId = std::int32_t;  // index into Program::values
using NodeId = std::int32_t;   // index into Program::nodes
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

struct OpDef;

struct Type {
  DType dtype = DType::kF32;
  Shape shape;

  std::int64_t count() const { return shape.product(); }
  std::int64_t bytes() const { return count() * static_cast<std::int64_t>(size_of(dtype)); }
  std::string str() const;  // "f32[4,128]"
  friend bool operator==(const Type&, const Type&) = default;
};

// Where a value's elements lie: in the bytes of `base`, which is the value itself unless it is a
// view.
struct Layout {
  ValueId base = kNoValue;
  std::int64_t offset = 0;  // In elements, from the start of the base.
  Strides strides;          // elements
  friend bool operator==(const Layout&, const Layout&) = default;
};

// The kinds of leaves. A constant is like a parameter that nothing updates: it has stored values,
// no gradient and no states, and no program writes it (a mask, a table, a frozen weight).
enum class LeafKind : std::uint8_t { kNone, kInput, kParameter, kState, kConstant };
TRACESTEP_WORDS(LeafKind, "none", "input", "parameter", "state", "constant");

// The memory in which a leaf lies. Kernels of a device with its own memory can read and write the
// host's over a bus, more slowly. Only parameters and states can lie in the host's memory.
enum class Memory : std::uint8_t { kDevice, kHost };

// What a value is in the memory report; passes set it, and it is never guessed.
enum class Role : std::uint8_t { kNone, kGradient, kOptimizerState, kWeightCast, kCache };
TRACESTEP_WORDS(Role, "none", "gradient", "optimizer_state", "weight_cast", "cache");

// The phase of a node. kRecompute: a forward node that runs again in backward, because its result
// was not kept.
enum class Phase : std::uint8_t { kForward, kBackward, kRecompute, kOptimizer, kCommunication };
TRACESTEP_WORDS(Phase, "forward", "backward", "recompute", "optimizer", "communication");

// Where a node comes from: the model path, the phase and the source line that made it.
struct Origin {
  std::string path;  // "layers.3.attn.softmax"
  Phase phase = Phase::kForward;
  std::string file;  // relative to the source tree; empty if unknown
  int line = 0;
  friend bool operator==(const Origin&, const Origin&) = default;
};

// The place of a leaf in a block of memory. Leaves of one block lie side by side, so that a program
// can read several of them as one tensor. The code that builds the model decides this, and all
// programs that share the leaves must agree.
struct BlockPart {
  std::string block;        // empty: the leaf has memory of its own
  std::int64_t offset = 0;  // In elements, from the start of the block.
  std::int64_t count = 0;   // The number of elements in the whole block.
  friend bool operator==(const BlockPart&, const BlockPart&) = default;
};

struct Value {
  Type type;
  Layout layout;
  NodeId producer = kNoNode;  // The node that computes it; kNoNode: it is a leaf.
  int output_index = 0;       // Its index among the producer's outputs.
  LeafKind leaf = LeafKind::kNone;
  Role role = Role::kNone;
  std::string name;  // leaves only
  BlockPart part;    // leaves only
  Memory memory = Memory::kDevice;
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  SharedVector<Origin> origins;  // There is at least one; a fused node has several.
  std::string made_by;           // the pass that made it; empty: the model's own code
  // Unless 0, the node runs when backward needs it, and is never merged with nodes of another
  // epoch.
  int epoch = 0;

  const Origin& origin() const { return origins.front(); }
};

struct Output {
  std::string name;
  ValueId value = kNoValue;
};

// After the step, `leaf` holds `value`. The old value of `leaf` may not be read by nodes that come
// after the producer of `value`.
struct Update {
  ValueId leaf = kNoValue;
  ValueId value = kNoValue;
};

struct Program {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;  // In execution order: inputs come before their readers.
  std::vector<ValueId> leaves;
  std::vector<Output> outputs;
  std::vector<Update> updates;

  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  const Type& type(ValueId id) const { return value(id).type; }
  // Return the leaf or output called `name`; kNoValue: there is none.
  ValueId find_leaf(std::string_view name) const;
  ValueId find_output(std::string_view name) const;
};

// True if both have the same leaves, nodes, attributes, origins, updates and outputs in the same
// order; the ids of values may differ. Linear in the size of the programs.
bool operator==(const Program& a, const Program& b);

// True if `value` has all elements of its base in row-major order, possibly in another shape.
bool covers_base(const Program& program, ValueId value);
// True when `value` is a view: its producer makes views, and it shares its base's bytes.
bool is_view(const Program& program, ValueId value);

// Returns the leaves that make up the value: itself if it is a leaf, those that a view spans
// (several if it spans parts of a block); none if a node computes it.
std::vector<ValueId> leaves_of(const Program& program, ValueId value);

// Returns the number of elements from the first to the last one of a tensor with these strides,
// both included.
std::int64_t extent_of(const Shape& shape, const Strides& strides);

// Returns the model path of a parameter: "layers.0.attn.q_proj.weight" → "layers.0.attn.q_proj".
std::string component_path(std::string_view parameter);

// The state that holds a low-precision copy of a parameter for matrix products: "shadow.NAME".
inline constexpr std::string_view kShadowPrefix = "shadow.";
std::string shadow_name(std::string_view parameter);

// The prefix of states that say whether the stored 8-bit codes of weights are valid: such a state
// is 0 if the codes are not those of the current weights (passes/form_passes.h, keep_codes).
inline constexpr std::string_view kFoundPrefix = "codes.found.";

// Returns the number of elements in all parameters.
std::int64_t parameter_count(const Program& program);

}  // namespace tracestep
