#include "passes/form_passes.h"
#include "passes/pass_rules.h"

#include "ir/rewrite.h"

namespace tracestep {

Program choose(const Program& program, const std::map<std::string, std::string>& forms) {
  Rewriter r(program, "choose");
  for (const Node& node : program.nodes) {
    const auto wanted = forms.find(node.op->name);
    if (wanted == forms.end()) {
      r.copy(node);
      continue;
    }
    const OpForm* form = node.op->find_form(wanted->second);
    if (form == nullptr) {
      fail_usage("choose", "{} has no form '{}'", node.op->name, wanted->second);
    }
    const auto guard = r.from(node);
    const std::vector<Val> inputs = r.inputs(node);
    r.replace(node, form->expand({r.builder(), node.attrs, inputs, {}, {}, {}}));
  }
  return r.finish();
}

bool chooses_forms(const PassOptions& o) {
  return o.run.attention != AttentionForm::kNaive || o.run.mode == Mode::kInference;
}

// Chooses the run's form of attention and, in inference, the form of dropout that drops nothing.
Program choose(const Program& p, const PassOptions& o) {
  std::map<std::string, std::string> forms;
  if (o.run.attention != AttentionForm::kNaive) {
    const std::string form(name_of(o.run.attention));
    forms = {{"attention", form}, {"attention_with_cache", form}, {"attention_of_documents", form}};
  }
  if (o.run.mode == Mode::kInference) forms["dropout"] = "none";
  return choose(p, forms);
}

}  // namespace tracestep
