// Models of others as a person meets them: planned by name, trained from a folder with a
// config.json, and never taken for another one.
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/family_folder.h"
#include "support/paths.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ModelsCommandTest : public ::testing::Test {
 protected:
  ModelsCommandTest() {
    for (const char* family : {"gemma3", "gpt2", "qwen3"}) {
      const std::string file = std::string(family) + ".json";
      folder_.write(std::string("my-") + family + "/config.json",
                    content_of(testing::source_folder() / "tests/golden/families" / file));
    }
    std::string text;
    for (int i = 0; i < 40; ++i) text += "a small text, told again and again. ";
    folder_.write("text.txt", text);
  }

  ProgramRun run(const std::string& words) const {
    return run_tracestep(words_of(words), {.folder = folder_.path()});
  }
  // The output of a run that must end well.
  std::string output_of(const std::string& words) const {
    const ProgramRun found = run(words);
    EXPECT_EQ(found.status, 0) << words << ": " << found.err;
    return found.out;
  }
  std::string error_of(const std::string& words, int status) const {
    const ProgramRun found = run(words);
    EXPECT_EQ(found.status, status) << words << ": " << found.out;
    EXPECT_EQ(std::ranges::count(found.err, '\n'), 1) << found.err;
    return found.err;
  }

  TempFolder folder_;
};

TEST_F(ModelsCommandTest, AKnownModelIsPlannedByItsName) {
  EXPECT_THAT(output_of("models"), HasSubstr("llama-3.1-8b     llama          8,030,261,248"));
  EXPECT_THAT(
      output_of("memory --all --predict --model Llama-3.1-8B --batch 1 --context 128 --threads 2"),
      AllOf(HasSubstr("llama-3.1-8b"), HasSubstr("4 × 8,030,261,248")));
  EXPECT_THAT(run("memory --all --predict --model qwen2.5-0.5b --batch 1 --context 16").out,
              HasSubstr("formulas of what a layer saves are left out: they are of the reference "
                        "Transformer, from which qwen2.5-0.5b differs in kv_heads, qkv_bias, "
                        "tied_head"));
  EXPECT_THAT(error_of("bench --model llama-3.1-9b", 2), HasSubstr("did you mean llama-3.1-8b?"));
  EXPECT_THAT(error_of("bench --model my-nothing/", 3), HasSubstr("no such file or folder"));
}

TEST_F(ModelsCommandTest, WhatIsTrainedHereIsEvaluatedSampledAndResumedAsItsModel) {
  for (const std::string family : {"gemma3", "gpt2"}) {
    const std::string model = "my-" + family;
    output_of("train --model " + model +
              " --text text.txt --steps 3 --context 8 --batch 2 "
              "--checkpoint " +
              family + " --save " + family + ".safetensors");
    const std::string evaluated =
        output_of("eval --init " + family + " --text text.txt --context 8");
    EXPECT_EQ(output_of("eval --init " + family + ".safetensors --text text.txt --context 8"),
              evaluated);
    EXPECT_EQ(
        output_of("eval --init " + family + " --model " + model + " --text text.txt --context 8"),
        evaluated);
    output_of("generate --init " + family + " --prompt 'a small' --max-tokens 3");
    output_of("train --checkpoint " + family + " --resume --steps 5");
    for (const std::string more : {"--model my-qwen3", "--rope-theta 77", "--score-cap 3"}) {
      EXPECT_THAT(error_of("eval --init " + family + " --text text.txt --context 8 " + more, 2),
                  HasSubstr("are of another model"));
      EXPECT_EQ(run("train --checkpoint " + family + " --resume --steps 9 --text text.txt " + more)
                    .status,
                2)
          << more;
    }
  }
}

TEST_F(ModelsCommandTest, AFolderWithWeightsIsTrainedFurtherAndHandedBack) {
  testing::write_family_fixture("phi3", folder_ / "my-phi3");
  folder_.write("my-phi3/special_tokens_map.json", "{}");
  std::string tokens;
  for (int i = 0; i < 400; ++i) tokens += std::string{static_cast<char>(i * i % 48), 0};
  folder_.write("tokens.bin", tokens);
  const std::string shape = " --tokens tokens.bin --token-dtype uint16 --context 8 --batch 2 ";
  const std::string train = "train --steps 3 --checkpoint run --model my-phi3" + shape;
  EXPECT_THAT(run(train + "--save W.safetensors").err,
              HasSubstr("weights: those in my-phi3 (--init none starts from --seed)"));
  output_of("export run one");
  output_of("export W.safetensors two --dtype f32");
  const std::string trained = output_of("eval --init run" + shape);
  for (const std::string out : {"one", "two"}) {
    EXPECT_EQ(output_of("eval --model " + out + shape), trained);
    EXPECT_EQ(output_of("eval --init " + out + shape), trained);
    EXPECT_TRUE(std::filesystem::exists(folder_ / out / "special_tokens_map.json"));
    EXPECT_EQ(content_of(folder_ / out / "model.safetensors"),
              content_of(folder_ / "one/model.safetensors"));
  }
  EXPECT_NE(output_of("eval --model my-phi3" + shape), trained);
  EXPECT_NE(output_of("eval --model my-phi3 --init none" + shape),
            output_of("eval --model my-phi3" + shape));
  EXPECT_EQ(run("generate --model one --prompt-tokens 1,2 --max-tokens 3").err,
            "weights: those in one (--init none starts from --seed)\n");
  EXPECT_THAT(error_of("export run one", 5), HasSubstr("one is there already"));
  EXPECT_THAT(error_of("eval --init one --window 3" + shape, 2), HasSubstr("of another model"));
  std::filesystem::rename(folder_ / "my-phi3", folder_ / "moved");
  EXPECT_THAT(error_of("export run three", 3), HasSubstr("no longer there; give the folder of"));
  output_of("export run three --model moved");
  // A checkpoint of ranks has shards; they go on from the folder together.
  output_of("train --steps 1 --checkpoint ranks --model one --parallel dp=2,shard=3" + shape);
  output_of("export ranks four");
  EXPECT_EQ(output_of("eval --init ranks" + shape), output_of("eval --init four" + shape));
}

// A tokenizer of letters, a blank and <unk>: fewer than the 48 entries of the fixtures.
std::string tokenizer_of_letters() {
  Json vocab = Json::object();
  vocab["<unk>"] = 0;
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string{c}] = c - 'a' + 1;
  for (const char* more : {" ", ",", "."}) vocab[more] = static_cast<std::int64_t>(vocab.size());
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,)"
         R"("pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE",)"
         R"("dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,)"
         R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"merges":[],"vocab":)" +
         vocab.dump() + "}}";
}

// The commands of a row of README.md's table, with names in the place of those in capitals.
std::vector<std::string> commands_of_readme(const std::string& task) {
  const std::string page = content_of(testing::source_folder() / "README.md");
  const std::size_t at = page.find("| " + task);
  EXPECT_NE(at, std::string::npos) << task;
  const std::string row = page.substr(at, page.find('\n', at) - at);
  std::vector<std::string> out;
  const std::regex code("`([^`]+)`");
  for (std::sregex_iterator i(row.begin(), row.end(), code), end; i != end; ++i) {
    std::string command = (*i)[1];
    for (const auto& [word, name] :
         {std::pair{"NEW-FOLDER", "tuned"}, {"FOLDER", "my-qwen2"}, {"FILE", "text.txt"}}) {
      command = std::regex_replace(command, std::regex(word), name);
    }
    out.push_back(std::move(command));
  }
  return out;
}

TEST_F(ModelsCommandTest, AModelIsFineTunedAndHandedBackAsReadmePrintsIt) {
  testing::write_family_fixture("qwen2", folder_ / "my-qwen2");
  folder_.write("my-qwen2/tokenizer.json", tokenizer_of_letters());
  const auto commands = commands_of_readme("fine-tune a published model, and hand it back");
  ASSERT_EQ(commands.size(), 2u);
  const std::string small = " --context 8 --batch 2";
  output_of(commands[0] + small);
  EXPECT_EQ(error_of("export run/best x", 3),
            "tracestep: [WEIGHTS] run has no best checkpoint, as --validate-every was not given; "
            "newest: run/latest\n");
  EXPECT_EQ(error_of("eval --text text.txt --init run/best", 3),
            "tracestep: [--init] run has no best checkpoint, as --validate-every was not given; "
            "newest: run/latest\n");
  EXPECT_EQ(run(commands[1]).err,
            "export: tuned is written, of run/latest, as there is no best checkpoint\n");
  const std::string text = " --text text.txt --context 8 --batch 2";
  EXPECT_EQ(output_of("eval --model tuned" + text), output_of("eval --init run" + text));
  // With validation it is the best one, which here the last one is not.
  output_of(
      "train --model my-qwen2 --checkpoint other --validate-every 1 --lr 3 --warmup-steps 0"
      " --steps 4" +
      small + " --text text.txt");
  EXPECT_EQ(run("export other best").err, "export: best is written, of other/best\n");
  EXPECT_EQ(output_of("eval --model best" + text), output_of("eval --init other/best" + text));
  for (const char* page :
       {"docs/python.md", "docs/models.md", "src/lab/pages/commands/export.md"}) {
    EXPECT_THAT(content_of(testing::source_folder() / page), Not(HasSubstr("run/best"))) << page;
  }
}

// A model that began here is whole in transformers' format: with it text becomes the same tokens.
TEST_F(ModelsCommandTest, ATokenizerMadeHereGoesWithItsWeights) {
  std::vector<std::string> kinds{"bytes"};
  if (has_bpe()) kinds.emplace_back("bpe --bpe-vocab 320");
  for (const std::string& kind : kinds) {
    const std::string name = kind.substr(0, kind.find(' '));
    const std::string text = " --text text.txt --context 8 --batch 2 ";
    output_of("train --d-model 16 --d-ff 32 --layers 1 --heads 2 --steps 1 --tokenizer " + kind +
              " --save " + name + ".safetensors" + text);
    EXPECT_THAT(run("export " + name + ".safetensors " + name).err,
                ::testing::Not(HasSubstr("stays behind")));
    EXPECT_EQ(Json::parse(content_of(folder_ / name / "tokenizer_config.json"), "config")
                  .at("tokenizer_class"),
              Json("PreTrainedTokenizerFast"));
    EXPECT_EQ(output_of("eval --model " + name + text),
              output_of("eval --init " + name + ".safetensors" + text));
  }
}

TEST_F(ModelsCommandTest, TheTokenizerOfAFolderGoesWithItsWeights) {
  testing::write_family_fixture("qwen2", folder_ / "qwen");
  folder_.write("qwen/tokenizer.json", tokenizer_of_letters());
  const std::string text = " --text text.txt --context 8 --batch 2 ";
  output_of("train --model qwen --steps 2 --checkpoint run --save W.safetensors" + text);
  output_of("export run out");
  output_of("export W.safetensors again");
  const std::string trained = output_of("eval --init run" + text);
  for (const std::string out : {"out", "again"}) {
    EXPECT_EQ(output_of("eval --model " + out + text), trained);
    EXPECT_EQ(content_of(folder_ / out / "tokenizer.json"), tokenizer_of_letters());
  }
  EXPECT_THAT(output_of("generate --model out --prompt 'a small' --max-tokens 4"),
              ::testing::StartsWith("a small"));
  // A new model has it too.
  output_of("train --size tiny --steps 1 --tokenizer qwen --save new.safetensors" + text);
  output_of("export new.safetensors new");
  EXPECT_EQ(content_of(folder_ / "new/tokenizer.json"), tokenizer_of_letters());
  folder_.write("qwen/tokenizer.json", "{}");
  EXPECT_THAT(error_of("eval --init qwen" + text, 3), HasSubstr("tokenizer.json"));
  const ProgramRun numbers = run("generate --init qwen --prompt-tokens 1,2 --max-tokens 3");
  EXPECT_EQ(numbers.status, 0);
  EXPECT_THAT(numbers.err, HasSubstr("the numbers have no text"));
}

TEST_F(ModelsCommandTest, TheProductsOfAProfileAreThoseOfTheModel) {
  const std::string profile =
      "profile --device cpu --threads 1 --context 8 --batch 1 --steps 1 --mode step --model my-";
  for (const std::string model : {"gpt2", "gemma3 --attention flash"}) {
    const ProgramRun found = run(profile + model);
    EXPECT_EQ(found.status, 0) << found.err;
  }
}

TEST_F(ModelsCommandTest, AModelIsGivenOnce) {
  for (const std::string both : {"--model my-gpt2 --size tiny", "--size tiny --model my-gpt2"}) {
    EXPECT_THAT(error_of("memory --predict --context 8 " + both, 2),
                HasSubstr("is given beside it; give one of them"));
    EXPECT_EQ(run("train --text text.txt --steps 1 --context 8 " + both).status, 2);
  }
}

TEST_F(ModelsCommandTest, AVocabularyThatIsNotTheModelsIsSaid) {
  const std::string train = "train --text text.txt --steps 1 --context 8 --batch 1 --model my-gpt2";
  const std::string line = "my-gpt2: the vocabulary is the 256 tokens of the tokenizer, not 48";
  EXPECT_THAT(run(train).err, HasSubstr(line));
  EXPECT_THAT(run(train + " --vocab 300").err, Not(HasSubstr("the vocabulary is")));
  EXPECT_THAT(run("train --text text.txt --steps 1 --context 8 --size tiny").err,
              Not(HasSubstr("the vocabulary is")));
}

// The value of a row of a topic; null: it has none.
Json value_of(const Json& topic, const std::string& what) {
  for (const Json& row : topic.at("rows").items()) {
    if (row.at("what") == Json(what)) return row.at("value");
  }
  return {};
}

TEST_F(ModelsCommandTest, TheTopicsOfExplainTakeAnyModel) {
  for (const std::string topic :
       {"flops", "lora", "gemm-share", "peak-memory", "saved-for-backward", "residual-stream",
        "adamw", "oom", "checkpointing", "attention-memory", "flash-attention", "data-parallel",
        "parallel-limits", "softmax", "mixed-precision", "accumulation", "autocast", "loss-scaling",
        "rmsnorm"}) {
    for (const std::string model : {"gpt2", "gemma3", "qwen3"}) {
      output_of("explain " + topic + " --context 8 --batch 1 --model my-" + model);
    }
  }
  for (const std::string model : {"--model my-gpt2", "--model my-gemma3", "--size tiny"}) {
    const auto explained = [&](const std::string& topic) {
      return Json::parse(
          output_of("explain " + topic + " --format json --context 8 --batch 1 " + model), topic);
    };
    const Json flops = explained("flops"), saved = explained("saved-for-backward");
    EXPECT_EQ(value_of(flops, "forward, all of them"), value_of(flops, "forward, by the program"));
    EXPECT_EQ(value_of(saved, "one layer of plain PyTorch code").is_null(), model != "--size tiny")
        << "its closed form is of the reference Transformer";
  }
}

TEST_F(ModelsCommandTest, TwoModelsOfOneNameAreToldApart) {
  folder_.write("more/my-gpt2/config.json",
                [text = content_of(folder_ / "my-gpt2/config.json")]() mutable {
                  const std::string layers = "\"n_layer\": 2";
                  return text.replace(text.find(layers), layers.size(), "\"n_layer\": 3");
                }());
  const std::string memory = "memory --predict --context 8 --all ";
  EXPECT_THAT(output_of(memory + "--model my-gpt2,more/my-gpt2"),
              AllOf(HasSubstr("size     layers  context"), HasSubstr("my-gpt2       2        8"),
                    HasSubstr("my-gpt2       3        8")));
  EXPECT_THAT(output_of(memory + "--size tiny,small --kv-heads 2"),
              HasSubstr("size    d_model  context"));
  EXPECT_THAT(output_of(memory + "--size tiny,small"), HasSubstr("size   context"));
}

TEST_F(ModelsCommandTest, AContextEndsWithTheLearnedPositions) {
  EXPECT_THAT(
      output_of("fit --model my-gpt2 --memory-limit 1GiB --largest context --all"),
      AllOf(HasSubstr("The largest context that fits at batch 4, fp32 is 32"),
            HasSubstr("more than 32 would fit, which is all that the model has positions")));
  EXPECT_THAT(error_of("memory --predict --model my-gpt2 --context 33", 2),
              HasSubstr("[--context] 33 tokens are more than the 32 positions"));
  const std::string generate =
      "generate --model my-gpt2 --init none --prompt-tokens 1,2,3 --max-tokens ";
  EXPECT_EQ(run(generate + "29").status, 0);
  EXPECT_THAT(
      error_of(generate + "30", 2),
      HasSubstr("[--max-tokens] 3 tokens of the prompt and 30 new ones are more than the 32 "
                "positions of my-gpt2; give at most 29"));
}

TEST_F(ModelsCommandTest, RotaryPositionsHaveNoNumber) {
  EXPECT_THAT(
      error_of("memory --predict --size tiny --max-positions 64", 2),
      HasSubstr("[--max-positions] tiny has rotary positions, and any number of them; leave "
                "it out, or give --positions learned as well"));
  output_of("memory --predict --context 8 --size tiny --max-positions 64 --positions learned");
  output_of("memory --predict --context 64 --model my-gpt2 --positions rotary");
}

TEST_F(ModelsCommandTest, ARunIsResumedFromAnyFolder) {
  output_of(
      "train --model my-gpt2 --text text.txt --steps 1 --context 8 --batch 1 --checkpoint run");
  std::filesystem::create_directory(folder_ / "elsewhere");
  const ProgramRun found = run_tracestep(words_of("train --checkpoint ../run --resume --steps 2"),
                                         {.folder = folder_ / "elsewhere"});
  EXPECT_EQ(found.status, 0) << found.err;
}

TEST_F(ModelsCommandTest, SamplesEndWithTheLearnedPositions) {
  const std::string train =
      "train --text text.txt --steps 2 --context 8 --batch 1 --model my-gpt2 --sample-every 1 ";
  const ProgramRun found = run(train);
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_THAT(found.err, HasSubstr("sample after step 2:\n"));
  const ProgramRun refused = run(train + "--sample-prompt " + std::string(33, 'a'));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("[--sample-prompt] its 33 tokens are more than the 32 positions"));
}

TEST_F(ModelsCommandTest, TheCommandOfAFitIsOneThatAShellTakes) {
  std::filesystem::copy(folder_ / "my-gpt2", folder_ / "my gpt2");
  EXPECT_THAT(output_of("fit --model 'my gpt2' --context 8 --memory-limit 1GiB"),
              HasSubstr("tracestep bench --model 'my gpt2' --context 8"));
}

TEST_F(ModelsCommandTest, AModelWithUnknownFieldsIsPlannedAndNotRun) {
  testing::write_family_fixture("llama2", folder_ / "odd");
  Json config = Json::parse(content_of(folder_ / "odd/config.json"), "config");
  config["residual_multiplier"] = 0.2;
  folder_.write("odd/config.json", config.dump());
  const std::string note = "[odd] not known: residual_multiplier";
  for (const std::string plan :
       {"memory --predict", "fit --memory-limit 1GiB", "predict --published H100", "show"}) {
    const ProgramRun found = run(plan + " --model odd --context 8 --batch 1");
    EXPECT_EQ(found.status, 0) << plan << ": " << found.err;
    EXPECT_THAT(found.err, HasSubstr(note)) << plan;
  }
  const Json result = Json::parse(
      output_of("memory --predict --model odd --context 8 --batch 1 --format json"), "memory");
  EXPECT_THAT(result.at("notes").dump(), HasSubstr(note));
  const std::string words = " --model odd --context 8 --text text.txt --tokenizer bytes";
  for (const std::string& use : {"train --steps 1" + words, "train --init none --steps 1" + words,
                                 "eval" + words, std::string("bench --model odd --context 8"),
                                 std::string("generate --model odd --prompt-tokens 1,2")}) {
    EXPECT_THAT(error_of(use, 3), HasSubstr("unknown fields, which may change the model: res"));
  }
  EXPECT_THAT(error_of("export odd out", 3), HasSubstr("unknown fields"));
}

TEST_F(ModelsCommandTest, AQuantizedFolderIsPlannedAndNotRead) {
  testing::write_family_fixture("llama2", folder_ / "q");
  Json config = Json::parse(content_of(folder_ / "q/config.json"), "config");
  config["quantization_config"]["quant_method"] = "gptq";
  config["quantization_config"]["bits"] = 4;
  folder_.write("q/config.json", config.dump());
  const std::string says = "its weights are quantized (gptq, 4 bits); read are bf16, f16, f32";
  const ProgramRun planned = run("memory --predict --model q --context 8 --batch 1");
  EXPECT_EQ(planned.status, 0);
  EXPECT_THAT(planned.err, HasSubstr(says));
  EXPECT_THAT(error_of("generate --model q --prompt-tokens 1,2", 3), HasSubstr(says));
}

TEST_F(ModelsCommandTest, AHeadOfItsOwnIsEvaluatedTrainedAndHandedBack) {
  testing::write_family_fixture("llama3", folder_ / "headed");
  testing::write_family_fixture("llama3", folder_ / "untied");
  const SafetensorsFile file(folder_ / "headed/model.safetensors");
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : file.names()) tensors[name] = file.read(name);
  HostTensor head = tensors.at("model.embed_tokens.weight");
  std::ranges::reverse(head.as<float>());
  tensors["lm_head.weight"] = head;
  for (const char* name : {"headed", "untied"}) {
    write_safetensors(folder_ / name / "model.safetensors", {tensors.begin(), tensors.end()});
  }
  Json config = Json::parse(content_of(folder_ / "untied/config.json"), "config");
  config["tie_word_embeddings"] = false;
  folder_.write("untied/config.json", config.dump());
  std::string numbers;
  for (int i = 0; i < 400; ++i) numbers += std::string{static_cast<char>(i * i % 48), 0};
  folder_.write("tokens.bin", numbers);
  const std::string shape = " --tokens tokens.bin --token-dtype uint16 --context 8 --batch 2 ";
  const std::string wanted = output_of("eval --model untied" + shape);
  const ProgramRun found = run("eval --model headed" + shape);
  EXPECT_EQ(found.out, wanted);
  EXPECT_THAT(found.err, HasSubstr("the model is read as untied"));
  EXPECT_EQ(output_of("eval --init headed" + shape), wanted);
  EXPECT_EQ(output_of("generate --model headed --prompt-tokens 1,2 --max-tokens 5"),
            output_of("generate --model untied --prompt-tokens 1,2 --max-tokens 5"));
  output_of("export headed out");
  EXPECT_EQ(output_of("eval --model out" + shape), wanted);
  EXPECT_THAT(content_of(folder_ / "out/config.json"), HasSubstr("\"tie_word_embeddings\": false"));
  output_of("train --steps 2 --checkpoint run --model headed" + shape);
  output_of("train --checkpoint run --resume --steps 3");
  output_of("export run tuned");
  EXPECT_EQ(output_of("eval --init run" + shape), output_of("eval --model tuned" + shape));
  EXPECT_EQ(output_of("eval --init run --model headed" + shape),
            output_of("eval --model tuned" + shape));
  const std::string plan = "memory --predict --context 8 --batch 1 --all --model ";
  EXPECT_THAT(run(plan + "headed").err, HasSubstr("the model is read as untied"));
  std::string planned = output_of(plan + "headed");
  for (std::size_t at = 0; (at = planned.find("headed", at)) != std::string::npos;) {
    planned.replace(at, 6, "untied");
  }
  EXPECT_EQ(planned, output_of(plan + "untied"));
}

TEST_F(ModelsCommandTest, AContextBeyondTheModelsPositionsIsSaid) {
  EXPECT_THAT(
      run("memory --predict --model llama-2-7b --context 32768 --batch 1").err,
      HasSubstr("[context] 32768 tokens are more than the 4096 positions that llama-2-7b was "
                "made for"));
  EXPECT_THAT(run("memory --predict --model llama-2-7b --context 4096 --batch 1").err,
              Not(HasSubstr("positions")));
  testing::write_family_fixture("llama2", folder_ / "made");
  EXPECT_THAT(
      run("generate --model made --prompt-tokens 1,2 --max-tokens 63").err,
      HasSubstr("[context] 65 tokens are more than the 64 positions that made was made for"));
  EXPECT_THAT(run("eval --model made --init none --text text.txt --batch 1 --context 70").err,
              HasSubstr("[context] 70 tokens are more than the 64"));
}

TEST_F(ModelsCommandTest, CheckpointsAndAdaptersInThePlaceOfAModelAreNamed) {
  output_of("train --size tiny --text text.txt --steps 1 --context 8 --batch 1 --checkpoint run");
  for (const std::string use : {"generate --prompt a", "eval --text text.txt", "memory --predict",
                                "train --steps 1 --text text.txt"}) {
    EXPECT_THAT(error_of(use + " --model run", 3),
                HasSubstr("[--model] run holds checkpoints, and no config.json; train, eval and "
                          "generate take it as --init run"));
  }
  EXPECT_THAT(
      error_of("generate --checkpoint run --prompt a", 2),
      HasSubstr("unknown option --checkpoint; it is an option of train; did you mean --init?"));
  folder_.write("lora/adapter_config.json", R"({"base_model_name_or_path": "x/base"})");
  EXPECT_THAT(error_of("memory --predict --model lora", 3), HasSubstr("an adapter (LoRA), which "));
  EXPECT_THAT(error_of("generate --init lora --prompt a", 3),
              HasSubstr("an adapter (LoRA), which "));
  folder_.write("old/pytorch_model.bin", "x");
  folder_.write("old/config.json", content_of(folder_ / "my-qwen3/config.json"));
  for (const std::string use : {"generate --prompt-tokens 1", "train --steps 1 --text text.txt"}) {
    EXPECT_THAT(error_of(use + " --model old", 3),
                HasSubstr("PyTorch archives (pytorch_model.bin)"));
  }
}

TEST_F(ModelsCommandTest, AModelIsTakenUnderTheNameThatItIsStoredUnder) {
  const ProgramRun found =
      run("memory --predict --model meta-llama/Llama-3.1-8B --batch 1 --context 128 --all");
  EXPECT_THAT(found.out, HasSubstr("llama-3.1-8b"));
  EXPECT_THAT(found.err, HasSubstr("[meta-llama/Llama-3.1-8B] taken as llama-3.1-8b"));
  EXPECT_THAT(error_of("memory --predict --model mixtral", 2),
              AllOf(HasSubstr("of the type mixtral (a mixture of experts), which is not known"),
                    Not(HasSubstr("did you mean"))));
}

TEST_F(ModelsCommandTest, ScalingThatDividesByNothingIsRefused) {
  for (const std::string how : {"linear:0", "linear:0.5", "llama3:8:4:1:16", "yarn:4:1:32:16:0"}) {
    EXPECT_THAT(error_of("memory --predict --size tiny --rope-scaling " + how, 2),
                HasSubstr("[--rope-scaling]"));
  }
}

TEST_F(ModelsCommandTest, RowsOfTwoModelsAreTwoAndSayInWhatTheyDiffer) {
  const std::string bench =
      "bench --device null --warmup 0 --steps 1 --context 16 --batch 1 --format json ";
  output_of(bench + "--size tiny --resume rows.jsonl --output a.json");
  output_of(bench + "--size tiny --kv-heads 2 --resume rows.jsonl --output b.json");
  const Json a = Json::parse(content_of(folder_ / "a.json"), "a"),
             b = Json::parse(content_of(folder_ / "b.json"), "b");
  EXPECT_EQ(a.at("rows").items()[0].at("size"), Json("tiny"));
  EXPECT_EQ(b.at("rows").items()[0].at("size"), Json("custom"));
  EXPECT_NE(a.at("rows").items()[0].at("parameters"), b.at("rows").items()[0].at("parameters"));
  EXPECT_EQ(std::ranges::count(content_of(folder_ / "rows.jsonl"), '\n'), 7)
      << "a header, and a request, a row and a roof of each";
  EXPECT_THAT(output_of("compare a.json b.json --columns row,verdict"),
              HasSubstr("tiny → custom context 16 batch 1 step fp32 fused null kv_heads 0 → 2"));
  output_of(bench + "--size tiny --kv-heads 1 --output c.json");
  EXPECT_THAT(output_of("compare b.json c.json --columns row,verdict"),
              HasSubstr("custom context 16 batch 1 step fp32 fused null kv_heads 2 → 1"))
      << "both are custom";
}

TEST_F(ModelsCommandTest, AChangedPresetIsMeasuredInAProcessOfItsOwnToo) {
  const std::string out = output_of(
      "bench --size tiny --kv-heads 2 --warmup 1 --steps 2 --context 8 --batch 1 --processes 2 "
      "--roof 0 --threads 1 --format json");
  const Json row = Json::parse(out, "bench").at("rows").items()[0];
  EXPECT_EQ(row.at("size"), Json("custom"));
  EXPECT_EQ(row.at("cell").at("kv_heads"), Json(2));
}

// Counts how often a file is opened while this lives.
class Openings {
 public:
  explicit Openings(const std::filesystem::path& file) : handle_(inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(inotify_add_watch(handle_, file.c_str(), IN_OPEN), 0);
  }
  ~Openings() { ::close(handle_); }
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;

  // Those since the last call; the events of one file have no name behind them.
  int take() const {
    int out = 0;
    inotify_event event{};
    while (::read(handle_, &event, sizeof event) == sizeof event) ++out;
    return out;
  }

 private:
  int handle_;
};

// The folder is looked up where the flag is read, and what it says goes with the model from there.
TEST_F(ModelsCommandTest, AConfigIsReadOnce) {
  testing::write_family_fixture("llama3", folder_ / "model");
  std::string tokens;
  for (int i = 0; i < 400; ++i) tokens += std::string{static_cast<char>(i * i % 48), 0};
  folder_.write("tokens.bin", tokens);
  const std::string shape = " --batch 1 --context 16 --threads 1 --model model";
  const std::string text = " --tokens tokens.bin --token-dtype uint16" + shape;
  const Openings openings(folder_ / "model/config.json");
  for (const std::string& words :
       {"memory --predict" + shape, "fit --memory-limit 1GiB" + shape,
        "bench --device null" + shape, "eval --batches 1" + text,
        "train --steps 1 --save weights.safetensors" + text, "train --steps 1 --init none" + text,
        std::string("export weights.safetensors out")}) {
    output_of(words);
    EXPECT_EQ(openings.take(), 1) << words;
  }
}

}  // namespace
}  // namespace tracestep
