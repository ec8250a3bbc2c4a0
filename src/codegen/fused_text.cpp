#include "codegen/fused_text.h"

#include "base/indexed.h"
#include "codegen/device_expressions.h"
#include "codegen/fused_layout.h"
#include "embedded/device_text.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

constexpr std::int64_t kWarp = 32;

class Writer {
 public:
  Writer(const FusedBody& body, const FusedLayout& layout, bool in_place)
      : body_(body), p_(body.program), layout_(layout), in_place_(in_place) {}

  FusedText write();

 private:
  bool has_rows() const { return body_.width != 0; }
  bool adds_rows() const { return body_.rows_per_block != 0; }
  bool fills_rows() const { return layout_.held() * layout_.lanes * layout_.tiles == body_.width; }

  // Appends one line of the kernel's text, indented.
  template <class... T>
  void line(fmt::format_string<T...> format, T&&... values) {
    text_ += std::string(static_cast<std::size_t>(2 * depth_), ' ') +
             fmt::format(format, std::forward<T>(values)...) + '\n';
  }
  void signature();
  void coordinates(std::string index, std::size_t first, std::size_t last);
  std::string offset(const Access& a, std::size_t first, std::size_t last) const;
  std::string address(const Access& a) const;
  void each_pack(const std::function<void()>& body);
  void load(const Access& a);
  void load_all();
  void compute_all();
  void compute(const Node& node);
  void elementwise(const Node& node);
  void rotate(const Node& node);
  void reduce(const Node& node);
  void store(const Access& a);
  void store_all();
  void store_sums();
  void compute_points();
  void compute_rows();
  void compute_blocks();
  void find_arrays();
  std::vector<ValueId> sums_of_columns() const;

  // --- variables ---
  // Returns the value whose variable `id` uses: itself or, for a view, what its operand uses.
  ValueId variable_of(ValueId id) const {
    const NodeId maker = p_.value(id).producer;
    if (maker == kNoNode || !p_.node(maker).op->is_view()) return id;
    return variable_of(p_.node(maker).inputs[0]);
  }
  bool is_array(ValueId id) const { return arrays_[at(variable_of(id))]; }
  std::string name(ValueId id) const { return fmt::format("v{}", variable_of(id)); }
  std::string element(ValueId id, std::string_view index = "j") const {
    return is_array(id) ? fmt::format("{}[{}]", name(id), index) : name(id);
  }
  // Declares the variable of a result and opens the loop over its elements, if it has several.
  void begin(const std::vector<ValueId>& results, bool array, int step = 1);
  void end(bool array);

  const FusedBody& body_;
  const Program& p_;
  const FusedLayout& layout_;
  const bool in_place_;
  std::vector<bool> arrays_;  // by value: one element for each point of a thread
  std::string text_;
  int depth_ = 1, reductions_ = 0;
};

void Writer::signature() {
  std::string parameters;
  for (const Access& a : layout_.accesses) {
    parameters += fmt::format("{}{}{}* {}{}", parameters.empty() ? "" : ", ",
                              layout_.is_output(a) ? "" : "const ", element_type(a.dtype),
                              in_place_ ? "" : "__restrict__ ", a.name);
  }
  depth_ = 0;
  // A grid that sums columns may have just two blocks for each multiprocessor: both run at once.
  const bool is_shared = adds_rows() && layout_.threads() * layout_.held() <= kMostSumPoints;
  line("extern \"C\" __global__ void __launch_bounds__({}{})", layout_.threads(),
       is_shared ? ", 2" : "");
  line("{}({}) {{", kFusedKernelName, parameters);
  depth_ = 1;
  line("wait_for_predecessors();");
}

// Declares c<k>: the coordinate along part k of `index`, which counts points from part `first` on.
void Writer::coordinates(std::string index, std::size_t first, std::size_t last) {
  for (std::size_t k = first; k < last; ++k) {
    if (k + 1 == last) {
      line("const Index c{} = {};", k, index);
      break;
    }
    line("const Index c{} = {} % {}u, q{} = {} / {}u;", k, index, layout_.parts[k].size, k, index,
         layout_.parts[k].size);
    index = fmt::format("q{}", k);
  }
}

std::string Writer::offset(const Access& a, std::size_t first, std::size_t last) const {
  std::string out;
  for (std::size_t k = first; k < last; ++k) {
    if (a.steps[k] == 0 || layout_.parts[k].size == 1) continue;
    out += out.empty() ? "" : " + ";
    out += fmt::format("c{}", k);
    if (k == 0 && a.half != 0) out += " / 2u";
    if (a.steps[k] != 1) out += fmt::format(" * {}u", a.steps[k]);
  }
  return out.empty() ? "0" : out;
}

std::string Writer::address(const Access& a) const {
  const std::string elements = offset(a, 0, layout_.parts.size());
  return a.divisor == 1 ? fmt::format("{} + {}", a.name, elements)
                        : fmt::format("{} + ({}) / {}u", a.name, elements, a.divisor);
}

// Writes a loop over the thread's packs, by k: coordinates of each one's first point, then `body`.
void Writer::each_pack(const std::function<void()>& body) {
  if (!has_rows()) return body();
  line("#pragma unroll");
  line("for (int k = 0; k < {}; ++k) {{", layout_.held_packs);
  ++depth_;
  const std::string pack = layout_.tiles == 1 ? "k" : "tile";  // a tile holds one pack
  line("const Index column = ({} * {}u + lane) * {}u;", pack, layout_.lanes, layout_.pack);
  if (!fills_rows()) line("if (column >= {}u) continue;", body_.width);
  coordinates("column", 0, layout_.first_part_behind(body_.width));
  body();
  --depth_;
  line("}}");
}

void Writer::load(const Access& a) {
  const std::int64_t n = layout_.pack / a.divisor;
  if (a.half != 0) {
    line("load_halves<{}, {}>({}, {}, {}, v{} + k * {});", n, a.has_packs(n), address(a),
         a.steps[0], a.half * a.steps[0], a.value, n);
  } else if (a.has_packs(layout_.pack)) {
    line("load_pack<{}>({}, v{} + k * {});", n, address(a), a.value, n);
  } else {
    line("load_each<{}>({}, {}, v{} + k * {});", n, address(a), a.steps[0], a.value, n);
  }
}

// Writes all loads before the first use, so that they are in flight together.
void Writer::load_all() {
  std::vector<const Access*> arrays;
  for (std::size_t i = 0; i < layout_.operands; ++i) {
    const Access& a = layout_.accesses[i];
    const std::string_view type = variable_type(a.dtype);
    if (!is_array(a.value)) {
      const std::size_t rows = has_rows() ? layout_.first_part_behind(body_.width) : 0;
      line("const {} v{} = to_float({}[{}]);", type, a.value, a.name,
           a.repeats() ? "0" : offset(a, rows, layout_.parts.size()));
      continue;
    }
    line("{} v{}[{}]{};", type, a.value, layout_.held() / a.divisor,
         fills_rows() || !has_rows() ? "" : " = {}");
    arrays.push_back(&a);
  }
  each_pack([&] {
    for (const Access* a : arrays) load(*a);
  });
}

void Writer::begin(const std::vector<ValueId>& results, bool array, int step) {
  for (ValueId id : results) {
    arrays_[at(id)] = array;
    const std::string_view type = variable_type(p_.type(id).dtype);
    if (array) {
      line("{} v{}[{}];", type, id, layout_.held());
    } else {
      line("{} v{};", type, id);
    }
  }
  if (!array) return;
  line("#pragma unroll");
  if (step == 1) {
    line("for (int j = 0; j < {}; ++j) {{", layout_.held());
  } else {
    line("for (int j = 0; j < {}; j += {}) {{", layout_.held(), step);
  }
  ++depth_;
}

void Writer::end(bool array) {
  if (!array) return;
  --depth_;
  line("}}");
}

void Writer::elementwise(const Node& node) {
  const bool array = std::ranges::any_of(node.inputs, [&](ValueId id) { return is_array(id); });
  begin(node.outputs, array);
  std::vector<std::string> operands;
  for (ValueId id : node.inputs) operands.push_back(element(id));
  const DeviceExpressions made = device_expressions(p_, node, operands);
  if (!made.before.empty()) line("{}", made.before);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    line("{} = {};", element(node.outputs[i]), made.results[i]);
  }
  end(array);
}

void Writer::rotate(const Node& node) {
  const ValueId x = node.inputs[0], y = node.outputs[0];
  const DType to = p_.type(y).dtype;
  begin(node.outputs, true, 2);
  line("const auto r = Rotate()(Real{{{}}}, Real{{{}}}, Real{{{}}}, Real{{{}{}}});", element(x),
       element(x, "j + 1"), element(node.inputs[1], "j / 2"), node.attrs.flag("inverse") ? "-" : "",
       element(node.inputs[2], "j / 2"));
  line("{} = {};", element(y), rounded(to, "r.first.v"));
  line("{} = {};", element(y, "j + 1"), rounded(to, "r.second.v"));
  end(true);
}

void Writer::reduce(const Node& node) {
  const ValueId x = node.inputs[0], y = node.outputs[0];
  if (body_.is_per_block(y)) {
    line("#pragma unroll");
    line("for (int j = 0; j < {}; ++j) v{}[j] = Plus()(v{}[j], {});", layout_.held(), y, y,
         element(x));
    return;
  }
  const bool is_sum = node.op->name == "sum";
  const std::string_view functor = is_sum ? "Plus" : "Largest",
                         neutral = is_sum ? "0.0f" : "minus_infinity()";
  const int index = reductions_++;
  arrays_[at(y)] = false;
  line("float p{} = {};", index, neutral);
  line("#pragma unroll");
  line("for (int j = 0; j < {}; ++j) {{", layout_.held());
  ++depth_;
  if (!fills_rows()) {
    line("if (((j / {}) * {}u + lane) * {}u >= {}u) continue;", layout_.pack, layout_.lanes,
         layout_.pack, body_.width);
  }
  line("p{} = {}()(p{}, {});", index, functor, index, element(x));
  --depth_;
  line("}}");
  // Rows after each other take turns with two scratches.
  const int scratches = adds_rows() ? 2 : 1;
  if (layout_.lanes > kWarp) line("__shared__ float s{}[{}];", index, scratches * kWarp);
  const std::string scratch = layout_.lanes == kWarp ? "nullptr"
                              : adds_rows()          ? fmt::format("s{} + turn * {}u", index, kWarp)
                                                     : fmt::format("s{}", index);
  const bool has_groups = adds_rows() && layout_.rows_per_block > 1;
  const std::string x_reduced = fmt::format(
      "row_reduce<{}, {}{}>(p{}, {}, {})", functor, layout_.lanes,
      has_groups ? fmt::format(", {}", layout_.rows_per_block) : "", index, neutral, scratch);
  line("const float v{} = {};", y, rounded(p_.type(y).dtype, x_reduced));
}

void Writer::compute(const Node& node) {
  if (node.op->is_view()) return;
  if (node.op->fusion == Fusion::kRows) return reduce(node);
  if (node.op->fusion == Fusion::kPairs) return rotate(node);
  if (node.inputs.empty()) {  // a constant
    const ValueId y = node.outputs[0];
    arrays_[at(y)] = false;
    const double value = node.attrs.real("value");
    const DType dtype = p_.type(y).dtype;
    if (dtype == DType::kBool) return line("const bool v{} = {};", y, value != 0.0);
    return line("const float v{} = {};", y, rounded(dtype, literal(value)));
  }
  elementwise(node);
}

void Writer::store(const Access& a) {
  const std::string from = is_array(a.value)
                               ? fmt::format("{} + k * {}", name(a.value), layout_.pack)
                               : fmt::format("{}_all", a.name);
  if (!is_array(a.value)) {
    line("{} {}_all[{}];", variable_type(a.dtype), a.name, layout_.pack);
    line("#pragma unroll");
    line("for (int j = 0; j < {}; ++j) {}_all[j] = {};", layout_.pack, a.name, name(a.value));
  }
  const bool packs = a.has_packs(layout_.pack);
  if (a.half != 0) {
    line("if ({} != nullptr) store_halves<{}, {}>({}, {}, {}, {});", a.name, layout_.pack, packs,
         address(a), a.steps[0], a.half * a.steps[0], from);
  } else if (packs) {
    line("if ({} != nullptr) store_pack<{}>({}, {});", a.name, layout_.pack, address(a), from);
  } else {
    line("if ({} != nullptr) store_each<{}>({}, {}, {});", a.name, layout_.pack, address(a),
         a.steps[0], from);
  }
}

void Writer::store_all() {
  std::vector<const Access*> points;
  for (std::size_t i = layout_.operands; i < layout_.accesses.size(); ++i) {
    const Access& a = layout_.accesses[i];
    if (body_.is_per_block(a.value)) continue;
    if (!body_.is_per_row(a.value)) {
      points.push_back(&a);
      continue;
    }
    const std::size_t rows = layout_.first_part_behind(body_.width);
    line("if ({} != nullptr && lane == 0) set({}[{}], {});", a.name, a.name,
         offset(a, rows, layout_.parts.size()), name(a.value));
  }
  if (points.empty()) return;
  each_pack([&] {
    for (const Access* a : points) store(*a);
  });
}

// Writes the stores of sums over the rows of a block, which are complete after its last row.
void Writer::store_sums() {
  coordinates("block", layout_.first_part_behind(body_.width * body_.rows_per_block),
              layout_.parts.size());
  each_pack([&] {
    for (std::size_t i = layout_.operands; i < layout_.accesses.size(); ++i) {
      if (body_.is_per_block(layout_.accesses[i].value)) store(layout_.accesses[i]);
    }
  });
}

void Writer::compute_points() {
  line("const Index pack = Index{{blockIdx.x}} * {}u + threadIdx.x;", layout_.lanes);
  const std::int64_t packs = body_.count / layout_.pack;
  if (packs % layout_.lanes != 0) line("if (pack >= {}u) return;", packs);
  line("constexpr int k = 0;");
  coordinates(fmt::format("(pack * {}u)", layout_.pack), 0, layout_.parts.size());
  compute_all();
}

void Writer::compute_rows() {
  const std::int64_t rows = body_.count / body_.width;
  line("const unsigned lane = threadIdx.x % {}u;", layout_.lanes);
  line("const Index row = Index{{blockIdx.x}} * {}u + threadIdx.x / {}u;", layout_.rows_per_block,
       layout_.lanes);
  if (rows % layout_.rows_per_block != 0) line("if (row >= {}u) return;", rows);
  coordinates("row", layout_.first_part_behind(body_.width), layout_.parts.size());
  compute_all();
}

// Writes the loop of a block over its rows, summing columns: `rows_per_block` rows at once, each
// with sums of its own until the end.
void Writer::compute_blocks() {
  const std::int64_t groups = layout_.rows_per_block;
  const bool takes_turns = layout_.lanes > kWarp && body_.reduces_rows();
  if (layout_.tiles == 1) {
    line("const Index block = blockIdx.x;");
  } else {
    line("const Index tile = blockIdx.x % {}u, block = blockIdx.x / {}u;", layout_.tiles,
         layout_.tiles);
  }
  line("const unsigned lane = threadIdx.x % {}u, group = threadIdx.x / {}u;", layout_.lanes,
       layout_.lanes);
  for (ValueId id : sums_of_columns()) line("float v{}[{}] = {{}};", id, layout_.held());
  if (!body_.reduces_rows()) line("#pragma unroll 2");
  line("for (unsigned r = group{}; r < {}u; r += {}u) {{", takes_turns ? ", turn = 0" : "",
       body_.rows_per_block, groups);
  ++depth_;
  line("const Index row = block * {}u + r;", body_.rows_per_block);
  coordinates("row", layout_.first_part_behind(body_.width), layout_.parts.size());
  compute_all();
  if (takes_turns) line("turn ^= 1u;");
  --depth_;
  line("}}");
  for (ValueId id : sums_of_columns()) {
    if (groups > 1) line("add_groups<{}, {}, {}>(v{});", layout_.held(), layout_.lanes, groups, id);
  }
  if (groups > 1) line("if (group > 0) return;");
  store_sums();
}

// Returns the values that are sums over the rows of a block.
std::vector<ValueId> Writer::sums_of_columns() const {
  std::vector<ValueId> out;
  for (const Node& node : p_.nodes) {
    if (!node.op->is_view() && body_.is_per_block(node.outputs[0])) out.push_back(node.outputs[0]);
  }
  return out;
}

void Writer::compute_all() {
  load_all();
  for (const Node& node : p_.nodes) compute(node);
  store_all();
}

void Writer::find_arrays() {
  arrays_.assign(p_.values.size(), true);
  for (std::size_t i = 0; i < layout_.operands; ++i) {
    const Access& a = layout_.accesses[i];
    arrays_[at(a.value)] = !a.repeats() && !body_.is_per_row(a.value);
  }
}

FusedText Writer::write() {
  find_arrays();
  const bool is_small = std::max(body_.count, layout_.largest_offset()) >> 31 == 0;
  text_ = fmt::format("using Index = unsigned{};\n", is_small ? "" : " long long");
  signature();
  if (adds_rows()) {
    compute_blocks();
  } else if (has_rows()) {
    compute_rows();
  } else {
    compute_points();
  }
  depth_ = 0;
  line("}}");
  return {.kernel = std::move(text_),
          .blocks = static_cast<unsigned>(layout_.blocks),
          .threads = static_cast<unsigned>(layout_.threads()),
          .operands = layout_.read};
}

}  // namespace

FusedText write_fused_kernel(const FusedBody& body, std::span<const FusedOperand> leaves,
                             std::span<const FusedOperand> outputs, bool in_place) {
  return Writer(body, lay_out(body, leaves, outputs), in_place).write();
}

std::string with_device_text(const std::string& kernel) {
  std::string out;
  for (std::string_view part :
       {device_text::kFunctorsH, device_text::kComputingTypesCuh, device_text::kFusedCuh}) {
    out += part;
  }
  return out + "\nnamespace tracestep::cuda {\nusing namespace tracestep::scalar;\n\n" + kernel +
         "\n}  // namespace tracestep::cuda\n";
}

}  // namespace tracestep
