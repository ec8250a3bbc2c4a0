// The forms of conversations, beside what transformers makes of the published templates.
#include "tokens/chat_templates.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

using Messages = std::vector<ChatMessage>;

Messages conversation(bool has_system) {
  Messages out;
  if (has_system) out.push_back({"system", "Be brief"});
  out.insert(out.end(), {{"user", "Hello"},
                         {"assistant", "Hi there"},
                         {"user", "Who are you"},
                         {"assistant", "  An assistant \n"}});
  return out;
}

template <class F>
void expect_refused(const F& f, std::string_view why) {
  const std::string message = message_of(ErrorCode::kInput, f);
  EXPECT_TRUE(contains(message, why)) << message;
}

struct Rendered {
  const char* name;
  bool has_system;
  const char* text;
};

// By transformers 5.24 from the published templates, of both answers and no prompt behind them.
constexpr Rendered kRendered[] = {
    {"chatml", true,
     "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHello<|im_end|>"
     "\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\nWho are you"
     "<|im_end|>\n<|im_start|>assistant\n  An assistant \n<|im_end|>\n"},
    {"qwen-2.5", false,
     "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a help"
     "ful assistant.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>a"
     "ssistant\nHi there<|im_end|>\n<|im_start|>user\nWho are you<|im_end|>\n<|i"
     "m_start|>assistant\n  An assistant \n<|im_end|>\n"},
    {"qwen-2.5", true,
     "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHello<|im_end|>"
     "\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\nWho are you"
     "<|im_end|>\n<|im_start|>assistant\n  An assistant \n<|im_end|>\n"},
    {"llama-2", true,
     "<s>[INST] <<SYS>>\nBe brief\n<</SYS>>\n\nHello [/INST] Hi there </s><s>[IN"
     "ST] Who are you [/INST] An assistant </s>"},
    {"llama-3", true,
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief<|e"
     "ot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_"
     "header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|><|start_header_"
     "id|>user<|end_header_id|>\n\nWho are you<|eot_id|><|start_header_id|>assis"
     "tant<|end_header_id|>\n\nAn assistant<|eot_id|>"},
    {"mistral-v1", true,
     "<s> [INST] Be brief\n\nHello [/INST] Hi there</s> [INST] Who are you [/INS"
     "T]   An assistant \n</s>"},
    {"mistral-v3", true,
     "<s>[INST] Be brief\n\nHello[/INST] Hi there</s>[INST] Who are you[/INST] A"
     "n assistant</s>"},
    {"gemma", false,
     "<bos><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\nHi the"
     "re<end_of_turn>\n<start_of_turn>user\nWho are you<end_of_turn>\n<start_of_"
     "turn>model\nAn assistant<end_of_turn>\n"},
    {"phi-3", true,
     "<|system|>\nBe brief<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi the"
     "re<|end|>\n<|user|>\nWho are you<|end|>\n<|assistant|>\n  An assistant \n<"
     "|end|>\n<|endoftext|>"},
    {"granite", true,
     "<|start_of_role|>system<|end_of_role|>Be brief<|end_of_text|>\n<|start_of_"
     "role|>user<|end_of_role|>Hello<|end_of_text|>\n<|start_of_role|>assistant<"
     "|end_of_role|>Hi there<|end_of_text|>\n<|start_of_role|>user<|end_of_role|"
     ">Who are you<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>  An"
     " assistant \n<|end_of_text|>\n"},
    {"zephyr", true,
     "<|system|>\nBe brief</s>\n<|user|>\nHello</s>\n<|assistant|>\nHi there</s>"
     "\n<|user|>\nWho are you</s>\n<|assistant|>\n  An assistant \n</s>\n"}};

TEST(ChatTemplatesTest, TextsAreThoseOfThePublishedTemplates) {
  for (const Rendered& r : kRendered) {
    const ChatTemplate* form = find_chat_template(r.name);
    ASSERT_NE(form, nullptr) << r.name;
    EXPECT_EQ(rendered(*form, conversation(r.has_system)).text, r.text) << r.name;
  }
}

TEST(ChatTemplatesTest, DatesOfLlama31StandInASystemTurnThatIsAlwaysThere) {
  const ChatTemplate& form = *find_chat_template("llama-3.1");
  const std::string begin =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
      "December 2023\nToday Date: 26 Jul 2024\n\n";
  EXPECT_TRUE(rendered(form, conversation(false)).text.starts_with(begin + "<|eot_id|>"));
  EXPECT_TRUE(rendered(form, conversation(true)).text.starts_with(begin + "Be brief<|eot_id|>"));
}

TEST(ChatTemplatesTest, AnswersAndTheirEndsCount) {
  for (const ChatTemplate& form : chat_templates()) {
    const bool has_system = form.system_place != ChatTemplate::System::kRefused;
    const MarkedText out = rendered(form, conversation(has_system));
    std::vector<std::string> trained;
    for (const auto [begin, end] : out.trained)
      trained.push_back(out.text.substr(begin, end - begin));
    const std::string end(form.assistant.behind);
    const bool trims = form.trim != ChatTemplate::Trim::kNothing;
    const std::string second = trims ? "An assistant" : "  An assistant \n";
    EXPECT_EQ(trained, (std::vector<std::string>{"Hi there" + end, second + end})) << form.name;
  }
}

TEST(ChatTemplatesTest, OrdersThatAFamilyDoesNotKnowAreRefused) {
  const ChatTemplate &gemma = *find_chat_template("gemma"), &chatml = *find_chat_template("chatml");
  const Messages twice{{"user", "a"}, {"user", "b"}}, tool{{"user", "a"}, {"tool", "b"}};
  const Messages late{{"user", "a"}, {"system", "b"}}, none{{"system", "b"}};
  expect_refused([&] { rendered(gemma, twice); }, "one after the other");
  expect_refused([&] { rendered(gemma, conversation(true)); }, "gemma has no system messages");
  expect_refused([&] { rendered(chatml, tool); }, "the role \"tool\" is none of");
  expect_refused([&] { rendered(chatml, late); }, "a system message after the first");
  expect_refused([&] { rendered(chatml, none); }, "there is none of user or assistant");
  EXPECT_EQ(rendered(chatml, twice).trained.size(), 0u);
}

}  // namespace
}  // namespace tracestep
