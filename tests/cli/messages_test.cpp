// A person's mistake gets one clear line on stderr and the right exit status.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include <gtest/gtest.h>

#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

struct Mistake {
  const char* arguments;
  int status;
  const char* message;  // a part of it
};

void check(const Mistake& mistake, const std::filesystem::path& folder = {}) {
  const ProgramRun run = run_tracestep(words_of(mistake.arguments), {.folder = folder});
  EXPECT_EQ(run.status, mistake.status) << mistake.arguments << "\n" << run.err;
  EXPECT_TRUE(contains(run.err, mistake.message)) << mistake.arguments;
  // The last line says it; training may have said before what it read.
  const std::size_t end = run.err.empty() ? 0 : run.err.rfind('\n', run.err.size() - 2);
  const std::string last = end == std::string::npos ? run.err : run.err.substr(end + 1);
  EXPECT_TRUE(last.starts_with("tracestep: [")) << run.err;
  EXPECT_EQ(run.out, "") << mistake.arguments;
}

TEST(MessagesTest, UnknownWordsAreAnsweredWithTheNearestKnownOne) {
  for (const Mistake& m : {
           Mistake{"benhc", 2, "did you mean bench?"},
           Mistake{"--size small", 2, "the command comes first"},
           // Names of other trainers.
           Mistake{"train --learning_rate=6e-4", 2, "did you mean --lr?"},
           Mistake{"train --block-size 256", 2, "did you mean --context?"},
           Mistake{"bench --max-iters 5", 2, "did you mean --steps?"},
           Mistake{"bench --sise small", 2, "unknown option --sise; did you mean --size?"},
           Mistake{"bench small", 2, "\"small\" belongs to no option"},
           Mistake{"fit llama-3.1-8b --published H100", 2, "did you mean --model llama-3.1-8b?"},
           Mistake{"generate /", 2, "did you mean --init /?"},
           Mistake{"generate m.safetensors", 2, "did you mean --init m.safetensors?"},
           Mistake{"train my.txt", 2,
                   "\"my.txt\" belongs to no option; did you mean --text my.txt?"},
           Mistake{"eval valid.bin", 2, "did you mean --tokens valid.bin?"},
           Mistake{"bench --size smal", 2, "did you mean small?"},
           Mistake{"bench --mode stp", 2, "did you mean step?"},
           Mistake{"memory --shards 2", 2, "unknown option --shards; it is an option of train"},
           Mistake{"bench --mode forward --accumulate 2", 2,
                   "[--accumulate] nothing is updated, so no gradients are added up; leave it out, "
                   "or give --mode step"},
           Mistake{"bench --size tiny --accumulate 2 --part-steps 3", 2,
                   "[--part-steps] in micro-batches forward and backward take turns, so neither is "
                   "one part of a step; leave it out, or give --accumulate 1"},
           Mistake{
               "memory --predict --size tiny --context 8 --batch 1 --accumulate 257", 2,
               "[--accumulate] 257 micro-batches; one program is made of at most 256; give fewer "
               "and larger ones"},
           Mistake{"bench --fp8-scaling current", 2, "no step has products in 8 bits"},
           Mistake{"bench --mode forward --moments 8bit", 2, "there are no moments"},
           Mistake{"bench --mode forward --optimizer muon", 2,
                   "[--optimizer] nothing is updated, so there is no optimizer; leave it out, or "
                   "give --mode step"},
           Mistake{"memory --size tiny --mode step --optimizer muon --moments 8bit", 2,
                   "[--moments] 8bit with optimizer muon: its mean of gradients has no codes; give "
                   "moments bf16, or optimizer adamw"},
           Mistake{
               "memory --size tiny --mode step --optimizer muon --freeze layers", 2,
               "[--optimizer] muon is for the matrices of layers, and no layer of the model has "
               "one to train; give optimizer adamw"},
           Mistake{"memory --size tiny --optimizer muon --as pytorch", 2,
                   "[--optimizer] muon: a step of PyTorch is estimated with AdamW alone"},
           Mistake{"bench --format jsn", 2, "did you mean json?"},
           Mistake{"bench --device cpuu", 2, "did you mean cpu?"},
           Mistake{"bench --parallel 8", 2, "did you mean dp=8?"},
           Mistake{"memory --predict --size tiny --context 8 --recompute foo", 2,
                   "give none, blocks, nested, every=N, budget=SIZE, or paths"},
           Mistake{"fit --size tiny --published RTX 5090", 2,
                   "[--published] \"5090\" belongs to no option; a name with a blank needs quotes: "
                   "--published \"RTX 5090\""},
           Mistake{"bench --context 128 256", 2,
                   "[--context] \"256\" belongs to no option; several values are separated by "
                   "commas: --context 128,256"},
           Mistake{"launch -n 2 train --steps 1", 2, "put `--` before the command"},
           Mistake{"launch -n 2 train", 2, "put `--` before the command"},
           Mistake{"launch -n 2 -- bench --sise tiny", 2, "did you mean --size?"},
           Mistake{"launch -n 2 -- bench --d-model 8 --d-ff 8 --layers 1 --heads 3", 2,
                   "[--heads] 3 heads do not divide"},
           Mistake{"memory --predict --d-model 64 --d-ff 64 --layers 1 --heads 2 --head-width 7", 2,
                   "[--head-width] 7 of a head's 7 elements would be rotated"},
           Mistake{"launch -n 2 -- bench --size tiny", 2,
                   "[--parallel] 2 processes are asked for, and the step is that of 1 rank; use "
                   "--parallel dp=2"},
           Mistake{"launch -n 2 -- fit --size tiny", 2, "bench, comm, memory, profile, train do"},
           Mistake{"launch -n 2 -- tracestep", 2, "[launch] -- COMMAND is missing"},
           Mistake{"predict --size tiny --calibration none.json", 3,
                   "[predict] this machine is not calibrated: there is no none.json; run"},
           Mistake{"memory --predict --size tiny --context 8 --columns peak", 2,
                   "columns are at_peak, measured_peak_bytes, peak_bytes, predicted_peak_bytes, "},
           Mistake{"show --after autogrd", 2, "did you mean autograd?"},
           Mistake{"show --disable simplfy", 2, "did you mean simplify?"},
           Mistake{"train --order shufled", 2, "did you mean shuffled?"},
       }) {
    check(m);
  }
}

// The value is checked whether the command reads the variable or not.
TEST(MessagesTest, AWrongVariableOfTheEnvironmentIsRefusedByEveryCommand) {
  struct Wrong {
    const char *variable, *message;
  };
  for (const Wrong& wrong : {
           Wrong{"TRACESTEP_LOG=QUIET",
                 "[TRACESTEP_LOG] unknown level \"QUIET\"; quiet, warn or info"},
           Wrong{"TRACESTEP_VERIFY=x", "[TRACESTEP_VERIFY] \"x\" is not a whole number"},
           Wrong{"TRACESTEP_COMM_TIMEOUT=nan", "[TRACESTEP_COMM_TIMEOUT] \"nan\" is not a number"},
           Wrong{"RANK=one", "[RANK] \"one\" is not a whole number"},
       }) {
    for (const char* command : {"version", "explain", "doctor", "completions bash"}) {
      const ProgramRun run = run_tracestep(words_of(command), {.environment = {wrong.variable}});
      EXPECT_EQ(run.status, 2) << command;
      EXPECT_TRUE(contains(run.err, wrong.message)) << command;
      EXPECT_EQ(run.out, "") << command;
    }
  }
}

TEST(MessagesTest, NumbersAreReadStrictly) {
  for (const Mistake& m : {
           Mistake{"bench --batch 8abc", 2, "[--batch] \"8abc\" is not a whole number"},
           Mistake{"bench --batch -0", 2, "[--batch] \"-0\" is out of range"},
           Mistake{"bench --batch 0", 2, "[--batch] \"0\" is out of range"},
           Mistake{"bench --batch -4", 2, "[--batch] \"-4\" is out of range"},
           Mistake{"bench --batch 9223372036854775808", 2, "[--batch] "},
           Mistake{"bench --context 128,,256", 2, "[--context] \"128,,256\" has an empty entry"},
           Mistake{"bench --context 128,128", 2, "[--context] 128 is there twice"},
           Mistake{"train --lr 1e309", 2, "[--lr] "},
           Mistake{"train --lr nan", 2, "[--lr] \"nan\" is not a number"},
           Mistake{"train --lr -1", 2, "[--lr] \"-1\" is out of range"},
           Mistake{"train --clip -0", 2, "[--clip] \"-0\" is out of range"},
           Mistake{"train --seed 1.5", 2, "[--seed] \"1.5\" is not a whole number"},
           Mistake{"bench --memory-limit 16", 2, "has no unit; 16 bytes? write 16GiB"},
           Mistake{"bench --recompute budget=16", 2, "has no unit"},
           Mistake{"bench --parallel dp=2,bucket=25", 2, "has no unit"},
           Mistake{"comm --bytes 1MiB,64", 2, "has no unit"},
           Mistake{"train --steps 1.5", 2, "[--steps] \"1.5\" is not a whole number"},
           Mistake{"bench --context 4k,4096", 2, "[--context] 4096 is there twice"},
           Mistake{"bench --threads 0", 2, "[--threads] \"0\" is out of range"},
           Mistake{"bench --batch", 2, "[--batch] the value is missing"},
           Mistake{"bench --batch=", 2, "[--batch] the value is empty"},
           Mistake{"bench --batch 1 --batch 2", 2, "[--batch] it is given more than once"},
           Mistake{"memory --predict=3", 2, "[--predict] it takes no value"},
           Mistake{"show --diff decompose", 2, "[--diff] 2 values are needed"},
       }) {
    check(m);
  }
}

TEST(MessagesTest, AloneItListsWhatThereIs) {
  const ProgramRun run = run_tracestep({});
  EXPECT_EQ(run.status, 2);
  EXPECT_TRUE(contains(run.out, "\n  fit         does a step fit"));
  EXPECT_FALSE(contains(run.out, "Exit status"));
  EXPECT_EQ(
      run.err,
      "tracestep: [tracestep] say what to do; as in: tracestep fit --size small --memory-limit "
      "24GiB\n");
}

TEST(MessagesTest, NumbersAreTakenAsPeopleWriteThem) {
  for (const auto& [arguments, said] :
       {std::pair{"memory --predict --size tiny --context 1k --format csv --columns context",
                  "context\r\n1024\r\n"},
        {"memory --predict --size tiny --context 8 --vocab 1e3 --format csv --columns vocab",
         "vocab\r\n1000\r\n"},
        {"fit --size tiny --context 8 --memory-limit 24GB --format csv --columns limit_bytes",
         "limit_bytes\r\n24000000000\r\n"},
        {"fit --size tiny --context 8 --published h200 --format csv --columns limit_bytes",
         "limit_bytes\r\n150109106995\r\n"},
        {"fit --size tiny --context 8 --published rtx5090 --format csv --columns limit_bytes",
         "limit_bytes\r\n33608119091\r\n"}}) {
    EXPECT_EQ(run_tracestep(words_of(arguments)).out, said) << arguments;
  }
  EXPECT_TRUE(contains(run_tracestep(words_of("memory --predict --size tiny --context 1k")).err,
                       "--context 1k is 1024\n"));
  EXPECT_EQ(run_tracestep(words_of("bench --size tiny --device GPU")).err,
            run_tracestep(words_of("bench --size tiny --device cuda")).err);
}

TEST(MessagesTest, WhatIsNotAvailableIsRefusedWithWhatIs) {
  for (const Mistake& m : {
           Mistake{"bench --precision bf17", 2,
                   "one of fp32, tf32, fp32-split, bf16, fp16, fp8, bf16-pure, fp16-pure"},
           Mistake{"bench --device reference --precision bf16", 2,
                   "[--precision] reference computes in float64"},
           Mistake{"bench --executor fast", 2, "one of eager, arena, compiled"},
           Mistake{"bench --attention fast", 2, "one of naive, flash"},
           Mistake{"bench --device cuda", 6,
                   "cuda is not there: this build has no CUDA back end; build with the CUDA "
                   "toolkit (make build-cuda)"},
           Mistake{"bench --device cuda:99", 6, "this build has no CUDA back end"},
           Mistake{"doctor --ceilings --device cuda", 6, "this build has no CUDA back end"},
           Mistake{"doctor --device null", 2, "use cpu or cuda"},
           Mistake{"memory --predict --device reference", 2, "use cpu or cuda or null"},
           Mistake{"bench --device reference --precision bf16-pure", 2,
                   "[--precision] reference computes in float64"},
           Mistake{"train --device null --text a", 2, "null computes nothing"},
       }) {
    check(m);
  }
}

TEST(MessagesTest, OptionsThatContradictEachOtherAreNamed) {
  for (const Mistake& m : {
           Mistake{"bench --size small --d-model 64", 2, "[--size]"},
           Mistake{"bench --d-model 64", 2, "[--d-ff]"},
           Mistake{"bench --d-model 64 --d-ff 64 --layers 1 --heads 5", 2, "[--heads]"},
           Mistake{"bench --context 1048576 --batch 1048576", 2, "more than an exbibyte"},
           Mistake{"train", 2, "give --tokens FILE, --text PATH..., or --data PATH..."},
           Mistake{"train --tokens a --text b", 2, "[--text] --tokens is given as well"},
           Mistake{"train --text a --resume", 2, "[--resume] it needs --checkpoint"},
           Mistake{"train --text a --checkpoint-every 5", 2, "[--checkpoint-every] it needs"},
           Mistake{"train --text a --validation-fraction 0.1", 2, "it needs --validate-every"},
           Mistake{"train --tokens a --tokenizer bytes", 2, "[--tokenizer] it goes with --text"},
           Mistake{"generate", 2, "[--prompt] there is nothing to continue"},
           Mistake{"generate --prompt a", 2, "no tokenizer is known"},
           Mistake{"show --passes --ops-list", 2, "[show] give one of"},
           Mistake{"show --format json --size tiny", 2, "[--format] a program is plain text"},
       }) {
    check(m);
  }
}

TEST(MessagesTest, InputsThatCannotBeReadEndWithStatusThree) {
  const TempFolder folder;
  folder.write("empty.bin", "");
  folder.write("odd.bin", "abc");
  folder.write("large.bin", std::string("\x01\x00\xff\xff\x02\x00\x03\x00", 8));
  folder.write("text.txt", "some text that is long enough");
  folder.write("nul.txt", std::string("a\0b", 3));
  folder.write("bad.safetensors", "this is no tensor file");
  std::filesystem::create_directory(folder / "folder");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const Mistake& m : {
           Mistake{"eval --tokens missing.bin --token-dtype uint16", 3, "does not exist"},
           Mistake{"eval --tokens empty.bin --token-dtype uint16", 3, "empty.bin"},
           Mistake{"eval --tokens odd.bin --token-dtype uint16", 3, "odd.bin"},
           Mistake{"eval --tokens folder --token-dtype uint16", 3, "folder"},
           Mistake{"eval --tokens fifo --token-dtype uint16", 3, "FIFO"},
           Mistake{"eval --tokens large.bin --token-dtype uint16 --context 2 --vocab 100", 3,
                   "beyond the vocabulary of 100"},
           Mistake{"train --steps 1 --text text.txt --context 512", 3, "a context of 512 needs"},
           Mistake{"train --text missing.txt", 3, "missing.txt"},
           Mistake{"train --text nul.txt", 3, "binary"},
           Mistake{"train --text text.txt --tokenizer missing.model", 3, "missing.model"},
           Mistake{"eval --text text.txt --init bad.safetensors", 3, "bad.safetensors"},
           Mistake{"eval --text text.txt --init missing.safetensors", 3, "missing.safetensors"},
           Mistake{"generate --init missing.safetensors --prompt a", 3, "[--init] missing.safet"},
           Mistake{"bench --resume text.txt --device null --size tiny", 3, "text.txt"},
       }) {
    check(m, folder.path());
  }
}

TEST(MessagesTest, OutputsThatCannotBeWrittenAreFoundBeforeTheWork) {
  const TempFolder folder;
  folder.write("text.txt", std::string(1000, 'x'));
  std::filesystem::create_directory(folder / "folder");
  for (const Mistake& m : {
           Mistake{"bench --size xl --output missing/out.json", 5, "missing/out.json"},
           Mistake{"memory --predict --output folder", 5, "it is a directory"},
           Mistake{"show --size tiny --output /dev/fd/77", 5, "Bad file descriptor"},
           Mistake{"bench --size xl --resume missing/grid.jsonl", 5, "missing/grid.jsonl"},
           Mistake{"train --text text.txt --save missing/w.safetensors", 5, "missing/"},
           Mistake{"train --text text.txt --log folder", 5, "it is a directory"},
           Mistake{"eval --text text.txt --logits missing/l.safetensors", 5, "missing/"},
           Mistake{"doctor --output missing/d.txt", 5, "missing/d.txt"},
       }) {
    check(m, folder.path());
  }
}

TEST(MessagesTest, ThreadsThatCannotBeStartedAreAMessageOfOurs) {
  // Stacks that no address space holds.
  const auto huge_stacks = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, rlim_t{1} << 46);
    ::setrlimit(RLIMIT_STACK, &limit);
  };
  const std::string model = " --context 8 --d-model 16 --d-ff 16 --layers 1 --heads 2 --vocab ";
  for (const std::string command : {"bench --roof 0 --warmup 0 --steps 1", "memory"}) {
    const ProgramRun run = run_tracestep(words_of(command + " --threads 4" + model + "20"),
                                         {.before_start = huge_stacks});
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_TRUE(contains(run.err, "tracestep: [cpu] 4 threads could not be started: "));
    EXPECT_TRUE(contains(run.err, "; use --threads "));
    // Large weights are filled by several threads, if there are more.
    for (const char* vocab : {"20", "20000"}) {
      const ProgramRun alone = run_tracestep(words_of(command + " --threads 1" + model + vocab),
                                             {.before_start = huge_stacks});
      EXPECT_EQ(alone.status, 0) << alone.err;
    }
  }
}

}  // namespace
}  // namespace tracestep
