// The figures of five published write-ups of one course's systems assignment, as printed there;
// devices as their authors state them. Read by hand: a blank is a dash.
#include <charconv>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/published/published.h"

namespace tracestep {
namespace {

// = study | table | device | clock | precision | warm-up steps | contexts
// pass, size, then milliseconds ± standard deviation per context.
// B's "fp32 beside bf16" repeats its profiled forward times at context 128. D gives its times with
// warm-up as ranges over the sizes: their ends are here.
constexpr std::string_view kTimes = R"(
= A | large alone | - | wall | fp32 | - | -
forward          large        169.07
forward+backward large    516.75±1.7
= A | fp32 | - | wall | fp32 | - | -
forward+backward small         121.2
forward+backward medium        262.7
forward+backward large         516.8
forward+backward xl           1023.9
forward+backward 2.7B         1583.8
= A | bf16 | - | wall | bf16 | - | -
forward+backward small           137
forward+backward medium          200
forward+backward large         256.1
forward+backward xl            392.5
forward+backward 2.7B          365.1
= A | eager, beside compiled | - | wall | fp32 | - | -
forward          small          31.5
forward          medium        86.88
forward          large        172.89
step             small        120.33
step             medium       285.59
step             large        592.92
= B | 5 warm-up steps | RTX 5090 | wall | fp32 | 5 | 128 256 512 1024
forward          small      10.9±2.1      11.9±0    18.1±3.8    47.4±0.5
forward+backward small      55.8±4.9    60.7±5.9    61.3±1.6   158.3±0.5
forward          medium     21.8±1.4      28±1.2    49.7±0.2         oom
forward+backward medium    101.2±5.3   106.9±4.8   178.1±0.9         oom
forward          large      39.2±0.2    56.2±1.8         oom         oom
forward+backward large       164.7±1     207.6±2         oom         oom
forward          xl           65.4±2         oom         oom         oom
forward+backward xl              oom         oom         oom         oom
forward          2.7B       83.8±0.2         oom         oom         oom
forward+backward 2.7B            oom         oom         oom         oom
= B | 1 warm-up step | RTX 5090 | wall | fp32 | 1 | 128 256 512 1024
forward          small          10.7        13.1        17.6        47.5
forward+backward small          51.3        51.6        60.8       158.2
forward          medium         22.2        30.1        50.3           -
forward+backward medium         95.3       105.3       178.5           -
forward          large          41.4        58.2           -           -
forward+backward large         163.6         207           -           -
forward          xl             67.1           -           -           -
forward          2.7B           84.4           -           -           -
= B | no warm-up | RTX 5090 | wall | fp32 | 0 | 128 256 512 1024
forward          small          66.8        69.4        75.8       100.6
forward+backward small            83        84.5        92.8       189.3
forward          medium         79.6        89.5       108.6           -
forward+backward medium        130.5       137.8       212.4           -
forward          large         100.8       117.9           -           -
forward+backward large         199.5       241.2           -           -
forward          xl            127.9           -           -           -
forward          2.7B          143.2           -           -           -
= B | under the profiler | RTX 5090 | profiled | fp32 | - | 128 256 512 1024
forward          small         75.04       82.42       81.12      108.34
forward          medium        93.19       98.42      117.96         oom
forward          large        113.67       128.5           -           -
forward          xl           141.89           -           -           -
forward          2.7B         154.74           -           -           -
= B | fp32 beside bf16 | RTX 5090 | profiled | fp32 | - | 128
forward          small         75.89
forward          medium        94.93
forward          large         115.4
forward          xl           144.16
forward          2.7B         155.02
forward+backward small         85.71
forward+backward medium       119.69
forward+backward large        156.81
= B | bf16 beside fp32 | RTX 5090 | profiled | bf16 | - | 128
forward          small         79.35
forward          medium       103.34
forward          large        123.42
forward          xl           146.84
forward          2.7B         629.84
forward+backward small        105.35
forward+backward medium        141.5
forward+backward large        180.92
= B | eager, beside compiled | A800 | wall | fp32 | - | 128 256 512
step             xl            545.6       975.9      1850.8
step             2.7B          839.7      1469.8           -
= C | all sizes | A100 40 GB | wall | fp32 | 5 | 128
forward          small    38.32±0.36
forward          medium   76.59±0.71
forward          large   114.59±0.56
forward          xl      155.08±1.06
forward          2.7B     219.24±0.1
forward+backward small    78.33±0.46
forward+backward medium   154.6±0.31
forward+backward large   273.11±3.71
forward+backward xl      457.88±1.36
forward+backward 2.7B     672.3±0.23
= C | no warm-up | A100 40 GB | wall | fp32 | 0 | 128
forward+backward small   226.39±441.17
= C | 1 warm-up step | A100 40 GB | wall | fp32 | 1 | 128
forward+backward small    77.61±2.02
= C | 2 warm-up steps | A100 40 GB | wall | fp32 | 2 | 128
forward+backward small    76.42±2.58
= C | 5 warm-up steps | A100 40 GB | wall | fp32 | 5 | 128
forward+backward small    76.29±2.13
= C | contexts | A100 40 GB | wall | fp32 | 5 | 128 256 512 1024
forward          small         36.83       37.36       46.27      103.91
forward          medium        75.35       74.67      137.19         oom
forward          large        112.03      141.75      284.59         oom
forward          xl           152.31      280.63         oom         oom
forward          2.7B         219.37       416.3         oom         oom
= C | host ranges | A100 40 GB | host ranges | fp32 | 5 | 128 256 512 1024
forward          small          36.2        35.7        36.5        36.7
backward         small          39.5        39.6        40.1       121.6
forward          medium         72.7        71.1        73.5        92.8
backward         medium         77.8        91.6       245.4       621.5
forward          large         106.8       107.7       151.5           -
backward         large         126.5       253.5         588           -
forward          xl            144.9       176.3       357.6           -
backward         xl            255.4       592.2      1170.2           -
= D | main table | - | wall | fp32 | 0 | -
forward          small    41.63±75.3
forward          medium   46.39±3.19
forward          large   102.73±2.73
forward          xl      191.78±15.36
forward          2.7B            oom
backward         small   57.61±23.55
backward         medium  150.12±4.21
backward         large   304.39±8.01
backward         xl      35707.72±1286.26
backward         2.7B            oom
= D | with warm-up | - | wall | fp32 | 5 | -
forward          small         19.72
forward          xl           195.44
backward         small         52.73
backward         xl            36592
= D | under the profiler | - | profiled | fp32 | - | 128 512 1024
forward          small             -        19.3        57.5
forward          medium           24           -           -
= E | fp32 | - | wall | fp32 | - | 128 256 512 1024
forward          small            25        25.4        45.3       100.7
backward         small          38.3        49.1        90.6       211.7
forward          medium         50.9        69.1         136         305
backward         medium         87.1       133.1       276.5         634
forward          large          76.4       142.9       286.1       647.8
backward         large           166       295.4         609        1413
forward          xl            147.3       290.3       580.6         oom
backward         xl            310.3         615      1206.8         oom
forward          2.7B          228.7       426.1       876.2         oom
backward         2.7B          464.2       911.2      1822.1         oom
= E | under the profiler | - | profiled | fp32 | - | 128 256 512 1024
forward          small          44.5        45.3        52.7       103.3
backward         small          86.2        87.4          96       213.2
forward          medium         88.3        91.2       139.9       306.3
backward         medium        160.1       165.9       280.4       639.9
forward          large         141.8       148.1         287       644.6
backward         large         236.7       308.7       605.6      1411.8
forward          xl              175       294.6       580.7           -
backward         xl            349.7       612.4      1209.8           -
forward          2.7B          228.1       425.2       872.7           -
backward         2.7B          458.9       904.6      1823.2           -
= E | bf16 | - | profiled | bf16 | - | 128 256 512 1024
forward          large         156.8       150.5       154.2       211.7
backward         large         284.1       315.1       287.7       397.6
forward          2.7B            142       147.8       163.2           -
backward         2.7B          260.7       267.8       345.7           -
= E | bf16 with AdamW | - | wall | bf16 | - | 128 256 512 1024
step             large         563.3       545.9       557.9       701.9
step             2.7B          698.6         718       812.8           -
)";

// study, pass, size, precision, then the peak at contexts 128, 256 and 512 in the "GB" printed.
constexpr std::string_view kPeaks = R"(
A forward  2.7B fp32   24.5     35     70
B forward  2.7B fp32  18.51  25.34  44.17
B step     2.7B fp32  57.18  66.09      -
B step     2.7B fp32  53.87  60.86      -
B forward  2.7B bf16  22.76  27.51  39.23
B step     2.7B bf16  61.39  66.72      -
B step     xl   fp32  34.26  41.71  60.34
E forward  2.7B fp32     14     14     14
E backward 2.7B fp32     26     26     40
E step     2.7B fp32     55     55     70
E forward  2.7B bf16     20      -      -
)";

// study, device, width, unit of memory, then at contexts 256, 1024, 4096, 8192 and 16384 the
// milliseconds of forward, those of backward, and the memory before backward.
constexpr std::string_view kAttention = R"(
A - 16 GiB  .268 .292 2.07 7.77 33.3  2.02 2.03 4.48 17.5 63.8  .067 .128 1.076 4.090 16.117
A - 32 GiB  .064 .275 2.19 8.49 36.2  1.32 1.34 3.97 15.0 58.5  .068 .132 1.090 4.117 16.172
A - 64 GiB  .065 .288 2.66 10.4 43.8  1.07 1.09 4.63 17.6 69.0  .070 .139 1.117 4.172 16.281
A - 128 GiB  .072 .387 3.73 15.1 60.6  1.14 1.06 6.38 24.4 92.8  .073 .152 1.172 4.281 16.500
B A800 16 MiB  .61 .85 7.29 26.4 105.4  1.03 1.85 19.8 72.8 290.6  23.1 116.3 1580.5 6248.8 24897.3
B A800 32 MiB  .61 .87 7.53 27.3 109.5  .97 1.87 20.0 73.6 294.2  23.8 119.3 1592.5 6272.8 24945.3
B A800 64 MiB  .62 .91 7.99 29.3 117.2  .96 1.92 20.5 75.7 301.9  25.4 125.4 1616.6 6320.8 25041.3
B A800 128 MiB  .61 .98 8.98 33.3 132.1  .97 2.03 21.6 79.9 317.1  28.6 137.6 1664.8 6417.0 25233.5
E - 16 MiB  .13 .35 4.15 14.42 58.65  .37 1.10 10.17 35.16 142.65  10.62 50.25 536.25 2080.25 8240.25
E - 32 MiB  .14 .38 4.40 15.46 62.82  .29 1.24 10.35 35.81 147.48  19.25 52.25 544.25 2096.25 8272.25
E - 64 MiB  .13 .41 4.90 17.51 71.19  .40 1.13 10.84 38.07 155.57  20.25 56.25 560.25 2128.25 8336.25
E - 128 MiB  .13 .46 5.86 21.35 86.41  .37 1.04 11.87 42.39 172.25  22.25 64.25 592.25 2192.25 8464.25
)";

double number(std::string_view text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  TRACESTEP_CHECK(error == std::errc() && end == text.data() + text.size(), "\"{}\"", text);
  return out;
}

std::vector<std::string> split(std::string_view line, std::string_view separator) {
  std::vector<std::string> out;
  while (true) {
    const std::size_t end = line.find(separator);
    out.emplace_back(line.substr(0, end));
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end + separator.size());
  }
}

std::vector<std::string> words_of(std::string_view line) {
  std::istringstream in{std::string(line)};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(std::move(word));
  return out;
}

template <class Read>
void for_each_line(std::string_view table, Read read) {
  for (const std::string& line : split(table, "\n")) {
    if (!line.empty()) read(line);
  }
}

std::string stated(const std::string& text) {
  return text == "-" ? std::string() : text;
}

PublishedClock clock_of(std::string_view name) {
  if (name == "wall") return PublishedClock::kWall;
  if (name == "profiled") return PublishedClock::kProfiled;
  TRACESTEP_CHECK(name == "host ranges", "{}", name);
  return PublishedClock::kHostRange;
}

std::vector<PublishedTime> times() {
  std::vector<PublishedTime> out;
  PublishedTime head;
  std::vector<std::string> contexts;
  for_each_line(kTimes, [&](std::string_view line) {
    if (line.starts_with("= ")) {
      const std::vector<std::string> part = split(line.substr(2), " | ");
      head = {.study = part.at(0),
              .table = part.at(1),
              .device = stated(part.at(2)),
              .clock = clock_of(part.at(3)),
              .precision = part.at(4),
              .warmup = part.at(5) == "-" ? -1 : static_cast<int>(number(part.at(5)))};
      contexts = words_of(part.at(6));
      return;
    }
    const std::vector<std::string> word = words_of(line);
    TRACESTEP_CHECK(word.size() == contexts.size() + 2, "{}", line);
    for (std::size_t i = 0; i < contexts.size(); ++i) {
      const std::string& value = word[i + 2];
      if (value == "-") continue;
      PublishedTime cell = head;
      cell.pass = word[0];
      cell.size = word[1];
      cell.context = contexts[i] == "-" ? 0 : static_cast<std::int64_t>(number(contexts[i]));
      cell.is_oom = value == "oom";
      const std::vector<std::string> parts = split(value, "±");
      if (!cell.is_oom) cell.ms = number(parts[0]);
      if (parts.size() > 1) cell.std_ms = number(parts[1]);
      out.push_back(std::move(cell));
    }
  });
  return out;
}

std::vector<PublishedPeak> peaks() {
  std::vector<PublishedPeak> out;
  for_each_line(kPeaks, [&](std::string_view line) {
    const std::vector<std::string> word = words_of(line);
    for (std::size_t i = 0; i < 3; ++i) {
      if (word.at(4 + i) == "-") continue;
      out.push_back(
          {word[0], word[1], word[2], word[3], std::int64_t{128} << i, number(word[4 + i])});
    }
  });
  return out;
}

std::vector<PublishedAttention> attention() {
  constexpr std::int64_t kContexts[] = {256, 1024, 4096, 8192, 16384};
  std::vector<PublishedAttention> out;
  for_each_line(kAttention, [&](std::string_view line) {
    const std::vector<std::string> word = words_of(line);
    const double unit = word.at(3) == "GiB" ? 1024 : 1;
    for (std::size_t i = 0; i < 5; ++i) {
      out.push_back({word[0], stated(word[1]), static_cast<std::int64_t>(number(word[2])),
                     kContexts[i], number(word.at(4 + i)), number(word.at(9 + i)),
                     unit * number(word.at(14 + i))});
    }
  });
  return out;
}

std::vector<PublishedShares> shares() {
  return {
      {"E",
       "kernels of forward and backward",
       {14.0, 13.6, 13.5, 13.1, 10.0, 6.8, 6.4, 6.4, 3.6, 2.4, 1.3, 1.3, 1.2, 1.1}},
      {"C",
       "small's forward: matrix products, and other kernels by kind",
       {72.6, 6.0, 0.4, 1.6, 1.3, 2.7, 0.8, 1.7, 0.4}},
      {"A", "forward: the largest product, elementwise and reduce kernels", {47.2, 15.0, 4.0}},
  };
}

}  // namespace

const PublishedDevice* known_device(std::string_view name) {
  // Dense products with float32 sums, without TF32 for fp32; bytes of the device's memory.
  static const PublishedDevice kDevices[] = {
      {"RTX 5090", 104.8, 209.5, 1792, 31.3},
      {"A800", 19.5, 312, 2039, 79.2},
      {"A100 40 GB", 19.5, 312, 1555, 39.4},
      {"A100-SXM4-40GB", 19.5, 312, 1555, 39.4},
      {"A100-PCIE-40GB", 19.5, 312, 1555, 39.4},
      {"A100", 19.5, 312, 2039, 79.2},
      {"H100", 66.9, 989, 3350, 79.2},
      {"H200", 66.9, 989, 4800, 139.8},
      {"B200", 80, 2250, 8000, 178},
  };
  if (name.empty()) return nullptr;
  for (const PublishedDevice& d : kDevices) {
    if (name.find(d.name) != std::string_view::npos) return &d;
  }
  return nullptr;
}

Published published_tables() {
  return {
      .studies = {{"A", "device not stated", 2},
                  {"B", "an RTX 5090 with 32 GB; memory and attention on an A800 with 80 GB", 3},
                  {"C", "an A100-SXM4 with 40 GB", 2},
                  {"D", "neither device nor context stated", 2},
                  {"E", "device not stated", 2}},
      .times = times(),
      .peaks = peaks(),
      .attention = attention(),
      .shares = shares()};
}

}  // namespace tracestep
