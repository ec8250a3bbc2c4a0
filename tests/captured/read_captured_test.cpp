// The folder of a captured module: what is read of it, and what is refused, file by file.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "captured/captured_model.h"
#include "captured/forward_program.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path tiny() {
  return testing::source_folder() / "tests/captured/tiny";
}
std::string program_text() {
  return content_of(tiny() / kCapturedProgram);
}
std::string index_text() {
  return content_of(tiny() / kCapturedIndex);
}

std::string with(std::string text, std::string_view old, std::string_view now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, text.npos) << old;
  return text.replace(at, old.size(), now);
}

std::string refused(const std::string& program, const std::string& index) {
  return message_of(ErrorCode::kInput, [&] { captured_from(program, index, "folder"); });
}
std::string refused_program(std::string_view old, std::string_view now) {
  return refused(with(program_text(), old, now), index_text());
}
std::string refused_index(std::string_view old, std::string_view now) {
  return refused(program_text(), with(index_text(), old, now));
}

TEST(ReadCapturedTest, TheFixtureIsReadWithAllThatIsKnownOfIt) {
  const auto model = captured_at(tiny());
  EXPECT_EQ(model->name, "TinyNet");
  EXPECT_EQ(model->torch, "2.11.0");
  EXPECT_EQ(model->batch, 2);
  EXPECT_EQ(model->context, 4);
  EXPECT_EQ(model->vocab, 11);
  EXPECT_EQ(model->blocks, 2);
  EXPECT_THAT(model->block_parts, ElementsAre("down", "up"));
  EXPECT_EQ(model->weights, DType::kF32);
  EXPECT_TRUE(model->takes_text());
  EXPECT_EQ(model->tied.at("head.weight"), "embed.weight");
  EXPECT_THAT(model->frozen, ElementsAre("blocks.1.up.weight"));
  EXPECT_THAT(model->buffers, ElementsAre("positions"));
  EXPECT_EQ(model->check->worst, "embed.weight");
  EXPECT_EQ(model->patterns.at("cross_entropy"), 1);
  // Each tensor once: the tied head is none, and what is frozen is not counted.
  EXPECT_EQ(parameter_count(*model), 11 * 6 + 48 + 8 + 48 + 8 + 48);
  // mix·x: 2·B·T·T·C; four products of blocks: 2·BT·C·F; the head: 2·BT·C·V.
  EXPECT_EQ(forward_flops(*model), 2 * 2 * 4 * 4 * 6 + 4 * 2 * 8 * 6 * 8 + 2 * 8 * 6 * 11);
  EXPECT_EQ(captured_at(tiny()), model) << "read once";
}

TEST(ReadCapturedTest, PlacesInTheUsersSourceAreKept) {
  const auto model = captured_at(tiny());
  const Origin& origin = model->program.nodes[6].origin();
  EXPECT_EQ(origin.path, "blocks.0.up");
  EXPECT_EQ(origin.file, "tiny_net.py");
  EXPECT_EQ(origin.line, 20);
  const std::string text = print(model->program, {.locations = true});
  EXPECT_EQ(text, program_text());
  EXPECT_TRUE(parse_program(text) == model->program);
}

TEST(ReadCapturedTest, SomeOutputsTakeTheirNodesAndInputsAlone) {
  const auto model = captured_at(tiny());
  const Program logits = captured_program(*model, {kLogitsOutput});
  EXPECT_EQ(logits.find_leaf("labels"), kNoValue);
  EXPECT_EQ(logits.nodes.size(), model->program.nodes.size() - 2) << "the loss and its targets";
  EXPECT_EQ(parameter_count(logits), parameter_count(*model));
  const Program both = captured_program(*model, {kLossOutput, kLogitsOutput});
  EXPECT_EQ(both.nodes.size(), model->program.nodes.size());
  const std::string without = with(program_text(), "  output \"logits\" = %19\n", "");
  const CapturedModel plain = captured_from(without, index_text(), "folder");
  EXPECT_THAT(message_of(ErrorCode::kUsage, [&] { captured_program(plain, {kLogitsOutput}); }),
              HasSubstr("was captured without logits"));
}

TEST(ReadCapturedTest, ProgramsThatNoForwardPassHasAreRefused) {
  EXPECT_THAT(refused_program("constant %mix : f32[4,4]", "state %mix : f32[4,4] !optimizer_state"),
              HasSubstr("mix is a state"));
  EXPECT_THAT(refused_program("parameter %embed.weight : f32[11,6]",
                              "parameter %embed.weight : f32[11,6] on host"),
              HasSubstr("no leaf of a captured program"));
  for (const char* name : {"lr", "loss", "loss_scale"}) {  // a step would take it for its own
    std::string text = program_text();
    while (text.find("%mix") != text.npos) text = with(text, "%mix", std::string("%") + name);
    EXPECT_THAT(refused(text, index_text()), HasSubstr("as what every step has")) << name;
  }
  EXPECT_THAT(refused_program("  output \"loss\" = %21\n", ""), HasSubstr("no output \"loss\""));
  EXPECT_THAT(refused_program("output \"loss\" = %21", "output \"loss\" = %22"),
              HasSubstr("the loss is f32[8]"));
  EXPECT_THAT(refused_program("output \"logits\" = %19", "output \"grad.mix\" = %19"),
              HasSubstr("neither loss nor logits"));
  EXPECT_THAT(refused_program("output \"logits\" = %19", "output \"logits\" = %20"),
              HasSubstr("the logits are i64[8]"));
  EXPECT_THAT(refused_program("@ head forward", "@ head backward"),
              HasSubstr("not of the forward phase"));
  EXPECT_THAT(refused_program("%0 : f32[2,4,6] = gather", "%0 : f32[2,4,6] !gradient = gather"),
              HasSubstr("a value with a role"));
  EXPECT_THAT(refused_program("relu(%8)", "all_reduce(%8)"), HasSubstr("folder/program.txt:"));
  EXPECT_THAT(refused_program("%9 : f32[8,8] = relu(%8)", "%9 : f32[8,7] = relu(%8)"),
              HasSubstr("written as f32[8,7], inferred as f32[8,8]"));
}

// Three products of one value in one part of the model; that of another part, and a weight that is
// read twice, stay by themselves.
TEST(ReadCapturedTest, WeightsThatMultiplyOneInputLieSideBySide) {
  const char* const text = R"(program "p" {
  input %x : f32[3,4]
  parameter %a.q : f32[2,4]
  parameter %a.k : f32[3,4]
  parameter %b.w : f32[2,4]
  parameter %a.t : f32[2,4]
  parameter %a.bq : f32[2]
  parameter %a.bk : f32[3]
  %0 : f32[3,3] = matmul_bias(%x, %a.k, %a.bk) {transpose_b=true} @ a.k forward
  %1 : f32[3,2] = matmul_bias(%x, %a.q, %a.bq) {transpose_b=true} @ a.q forward
  %2 : f32[3,2] = matmul(%x, %b.w) {transpose_b=true} @ b.w forward
  %3 : f32[3,2] = matmul(%x, %a.t) {transpose_b=true} @ a.t forward
  %4 : f32[3,2] = matmul(%x, %a.t) {transpose_b=true} @ a.u forward
  %5 : f32[] = sum(%0) {axes=[0,1]} @ loss forward
  output "loss" = %5
})";
  Program program = read_forward_program(text, "p");
  place_side_by_side(program);
  const auto part = [&](const char* name) { return program.value(program.find_leaf(name)).part; };
  EXPECT_EQ(part("a.k"), (BlockPart{"a.k.and_beside", 0, 20}));
  EXPECT_EQ(part("a.q"), (BlockPart{"a.k.and_beside", 12, 20}));
  EXPECT_EQ(part("a.bk"), (BlockPart{"a.bk.and_beside", 0, 5}));
  EXPECT_EQ(part("a.bq"), (BlockPart{"a.bk.and_beside", 3, 5}));
  for (const char* alone : {"b.w", "a.t"}) EXPECT_EQ(part(alone), BlockPart{}) << alone;
}

TEST(ReadCapturedTest, AConstantIsNotUpdated) {
  EXPECT_THAT(refused_program("  output \"loss\"", "  update %mix = %mix\n  output \"loss\""),
              HasSubstr("only a parameter or a state can be updated"));
  EXPECT_THAT(refused_program("  output \"loss\"",
                              "  update %embed.weight = %embed.weight\n  output \"loss\""),
              HasSubstr("it updates a leaf"));
}

TEST(ReadCapturedTest, IndexesThatDoNotGoWithTheProgramAreRefused) {
  EXPECT_THAT(refused_index("\"format\": 1", "\"format\": 2"),
              HasSubstr("its format is 2; this version reads 1"));
  EXPECT_THAT(refused_index("\"format\": 1", "\"format\": \"1\""), HasSubstr("no whole number"));
  EXPECT_THAT(refused_index("\"module\": \"TinyNet\"", "\"module\": 7"), HasSubstr("is no text"));
  EXPECT_THAT(refused_index("\"TinyNet\"", "\"\""), HasSubstr("has no name"));
  EXPECT_THAT(refused_index("\"name\": \"ids\"", "\"name\": \"idz\""), HasSubstr("idz"));
  EXPECT_THAT(refused_index("\"name\": \"ids\"", "\"name\": \"mix\""), HasSubstr("is no input"));
  EXPECT_THAT(refused_index("\"name\": \"labels\"", "\"name\": \"ids\""), HasSubstr("twice"));
  EXPECT_THAT(refused_index("\"role\": \"tokens\"", "\"role\": \"words\""),
              HasSubstr("there are tokens, targets, batch and given"));
  EXPECT_THAT(refused_index("\"role\": \"tokens\"", "\"role\": \"batch\""),
              HasSubstr("the number of a batch is i64[1]"));
  EXPECT_THAT(refused_index("\"high\": 11", "\"high\": 0"), HasSubstr("has 0 values"));
  EXPECT_THAT(refused_index("\"embed.weight\"\n },", "\"nothing\"\n },"), HasSubstr("nothing"));
  EXPECT_THAT(refused_index("\"head.weight\"", "\"mix\""), HasSubstr("and a leaf itself"));
  EXPECT_THAT(refused_index("\"blocks.1.up.weight\"", "\"embed.weight\""),
              HasSubstr("no constant of the program"));
  EXPECT_THAT(refused_index("\"loss\": 1.1e-16", "\"loss\": -1"),
              HasSubstr("no number of at least 0"));
  EXPECT_THAT(refused(program_text(), "[]"), HasSubstr("it is no object"));
  EXPECT_THAT(refused(program_text(), "{"), HasSubstr("capture.json"));
}

// The table has 11 rows: a larger vocabulary would be looked up beyond it.
TEST(ReadCapturedTest, AVocabularyBeyondTheTableIsRefused) {
  EXPECT_THAT(refused_index("\"role\": \"tokens\",\n   \"high\": 11",
                            "\"role\": \"tokens\",\n   \"high\": 12"),
              HasSubstr("looks up 12 tokens in a table of 11"));
  EXPECT_THAT(refused_index("\"role\": \"targets\",\n   \"high\": 11",
                            "\"role\": \"targets\",\n   \"high\": 12"),
              HasSubstr("12 targets among 11 logits"));
}

TEST(ReadCapturedTest, AFolderWithoutItsFilesIsNone) {
  const TempFolder folder;
  EXPECT_FALSE(is_captured_folder(folder.path()));
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { captured_at(folder.path()); }),
              HasSubstr("it has no program.txt"));
  folder.write(kCapturedProgram, program_text());
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { captured_at(folder.path()); }),
              HasSubstr("it has no capture.json"));
  folder.write(kCapturedIndex, index_text());
  EXPECT_TRUE(is_captured_folder(folder.path()));
  EXPECT_EQ(captured_at(folder.path())->name, "TinyNet");
}

// Every prefix of both texts, and every text without one of its lines.
TEST(ReadCapturedTest, TextsThatAreCutAreRefusedOrRead) {
  const auto refuses_or_reads = [](const std::string& program, const std::string& index) {
    try {
      captured_from(program, index, "folder");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInput) << e.what();
    }
  };
  const std::string program = program_text(), index = index_text();
  for (std::size_t n = 0; n < program.size(); n += 7) refuses_or_reads(program.substr(0, n), index);
  for (std::size_t n = 0; n < index.size(); n += 3) refuses_or_reads(program, index.substr(0, n));
  for (std::size_t at = 0; at < program.size(); at = program.find('\n', at) + 1) {
    std::string less = program;
    less.erase(at, program.find('\n', at) + 1 - at);
    refuses_or_reads(less, index);
    if (program.find('\n', at) == program.npos) break;
  }
}

// --- groups of the optimizer -------------------------------------------------------------------
std::string grouped(std::string_view groups) {
  return with(index_text(), "\"native\": null",
              "\"optimizer\": \"AdamW\", \"optimizer_groups\": " + std::string(groups));
}

TEST(ReadCapturedTest, GroupsOfTheOptimizerAreRead) {
  const CapturedModel model = captured_from(
      program_text(),
      grouped(R"([{"parameters": ["embed.weight"], "lr": 0.01, "weight_decay": 0.1, "beta1": 0.8},
                  {"parameters": [], "lr": 0, "weight_decay": 0}])"),
      "folder");
  EXPECT_EQ(model.optimizer, "AdamW");
  ASSERT_EQ(model.groups.size(), 2u);
  EXPECT_THAT(model.groups[0].parameters, ElementsAre("embed.weight"));
  EXPECT_EQ(model.groups[0].lr, 0.01);
  EXPECT_EQ(model.groups[0].weight_decay, 0.1);
  EXPECT_EQ(model.groups[0].beta1, 0.8);
  EXPECT_EQ(model.groups[0].eps, std::nullopt);
}

TEST(ReadCapturedTest, GroupsThatNoOptimizerHasAreRefused) {
  const auto refused_groups = [](std::string_view groups) {
    return refused(program_text(), grouped(groups));
  };
  EXPECT_THAT(refused_groups("[]"), HasSubstr("no list of some"));
  EXPECT_THAT(refused_groups("[3]"), HasSubstr("is no object"));
  EXPECT_THAT(refused_groups(R"([{"parameters": [], "lr": 1}])"), HasSubstr("weight_decay"));
  EXPECT_THAT(refused_groups(R"([{"parameters": [], "lr": -1, "weight_decay": 0}])"),
              HasSubstr("no number of at least 0"));
  EXPECT_THAT(refused_groups(R"([{"parameters": [], "lr": 1, "weight_decay": 0, "beta1": 1}])"),
              HasSubstr("is the most"));
  EXPECT_THAT(refused_groups(R"([{"parameters": ["x"], "lr": 1, "weight_decay": 0}])"),
              HasSubstr("names x"));
  EXPECT_THAT(refused_groups(R"([{"parameters": ["ids"], "lr": 1, "weight_decay": 0}])"),
              HasSubstr("an input"));
  EXPECT_THAT(
      refused_groups(
          R"([{"parameters": ["embed.weight", "embed.weight"], "lr": 1, "weight_decay": 0}])"),
      HasSubstr("in two groups"));
}

}  // namespace
}  // namespace tracestep
