// Tests error feedback through whole collectives: nothing is lost at any site, whatever path the next call takes.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <optional>
#include <random>

#include "codec/registry.hpp"
#include "inputs.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

std::vector<CodecSpec> lossy_and_behind_topk() {
  std::vector<CodecSpec> specs;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    if (codec::Codec(CodecSpec(entry.id), DType::f32).lossy()) {
      specs.emplace_back(entry.id);
    }
    specs.emplace_back(entry.id, 41);
  }
  return specs;
}

// Returns a placeholder; reduce() sets the weight of each rank.
std::optional<double> any_weight(bool weighted) { return weighted ? std::optional(1.0) : std::nullopt; }

// The sum over a world's calls, and its expected value.
struct Account {
  std::vector<double> wanted;
  std::vector<double> got;

  explicit Account(std::uint64_t count) : wanted(count), got(count) {}
  [[nodiscard]] double error() const { return relative_error(got, wanted); }
};

// Returns one rank's gradients: the same for all callers with these arguments.
std::vector<float> gradient(std::uint64_t count, int rank, int step) {
  std::mt19937 random(static_cast<unsigned>(rank * 100003 + step * 17 + 1));
  std::vector<float> values(count);
  for (float& x : values) {
    x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-3F;
  }
  return values;
}

// Returns a rank's weight, the same in each step: a residual is in units of w x g, so another sum of weights would
// rescale it.
double whole_weight_of(int rank) { return 1 + (rank * 7) % 5; }

// Adds to `account` the expected and the actual result of step `step`, both as rank 0 sees them.
void reduce(Communicator& communicator, FeedbackBuffer& feedback, Account& account, int step, CallOptions options) {
  const std::uint64_t count = feedback.count();
  const int world = communicator.world_size();
  std::vector<float> values = gradient(count, communicator.rank(), step);
  options.feedback = &feedback;
  options.weight = options.weight ? std::optional(whole_weight_of(communicator.rank())) : std::nullopt;
  communicator.all_reduce(view(values.data(), count), options);
  if (communicator.rank() != 0) {
    return;
  }
  double total = 0;
  for (int rank = 0; rank < world; ++rank) {
    total += options.weight ? whole_weight_of(rank) : 1;
  }
  const double divisor = options.reduction == Reduction::mean ? total : 1;
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<float> theirs = gradient(count, rank, step);
    for (std::uint64_t i = 0; i < count; ++i) {
      account.wanted[i] += static_cast<double>(theirs[i]) * (options.weight ? whole_weight_of(rank) : 1) / divisor;
    }
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    account.got[i] += values[i];
  }
}

// Makes an exact call of zeros, which brings in all residuals.
void flush(Communicator& communicator, FeedbackBuffer& feedback, Account& account, Reduction reduction,
           bool weighted = false) {
  std::vector<float> zeros(feedback.count());
  communicator.all_reduce(view(zeros.data(), zeros.size()),
                          {.codec = CodecSpec::parse("exact"),
                           .algorithm = Algorithm::two_shot,
                           .reduction = reduction,
                           .weight = weighted ? std::optional(whole_weight_of(communicator.rank())) : std::nullopt,
                           .feedback = &feedback});
  EXPECT_EQ(feedback.bytes(), 0U);
  for (std::size_t i = 0; communicator.rank() == 0 && i < zeros.size(); ++i) {
    account.got[i] += zeros[i];
  }
}

// Mutations tried: residual = g - decoded instead of p - decoded; the residual is scaled by 1.05; the owner's residual
// is not kept; the local residual of the owner's own part is not consumed; residuals of ranks are exchanged.
TEST(Feedback, ConservesTheSumOverManySteps) {
  constexpr std::uint64_t kCount = 3 * 4096 + 777;
  for (const CodecSpec codec : lossy_and_behind_topk()) {
    for (const int world : {2, 3}) {
      SCOPED_TRACE(codec.to_string() + " world " + std::to_string(world));
      Account account(kCount);
      run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
        Communicator communicator(transport);
        FeedbackBuffer feedback(kCount);
        for (int step = 0; step < 60 / kStepShare; ++step) {
          reduce(
              communicator, feedback, account, step,
              {.codec = codec, .algorithm = Algorithm::two_shot, .reduction = Reduction::mean, .chunk_bytes = 1 << 13});
        }
        EXPECT_GT(feedback.bytes(), kCount * sizeof(float));
        EXPECT_LE(feedback.bytes(), 2 * kCount * sizeof(float));
        flush(communicator, feedback, account, Reduction::mean);
      });
      EXPECT_LE(account.error(), 1e-6);
    }
  }
}

TEST(Feedback, ConservesTheSumOverAThousandSteps) {
  constexpr std::uint64_t kCount = 600;
  for (const CodecSpec codec : lossy_and_behind_topk()) {
    SCOPED_TRACE(codec.to_string());
    Account account(kCount);
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      FeedbackBuffer feedback(kCount);
      for (int step = 0; step < 1000 / kStepShare; ++step) {
        reduce(communicator, feedback, account, step,
               {.codec = codec, .algorithm = Algorithm::two_shot, .reduction = Reduction::mean});
      }
      flush(communicator, feedback, account, Reduction::mean);
    });
    EXPECT_LE(account.error(), 1e-6);
  }
}

// Any codec and collective follows any other. Mutations tried: one_shot does not fold owner residuals; owner residuals
// fold without the sum of weights.
TEST(Feedback, ConservesTheSumOverRandomSwitches) {
  constexpr std::uint64_t kCount = 2 * 4096 + 100;
  const std::vector<CodecSpec> codecs = lossy_and_behind_topk();
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    for (const bool weighted : {false, true}) {
      const unsigned seed = 71 + (weighted ? 1 : 0);
      SCOPED_TRACE("seed " + std::to_string(seed));
      Account account(kCount);
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        std::mt19937 random(seed);  // the same choices on every rank
        Communicator communicator(transport);
        FeedbackBuffer feedback(kCount);
        constexpr std::array kAlgorithms{Algorithm::two_shot, Algorithm::one_shot, Algorithm::two_shot,
                                         Algorithm::dense};
        for (int step = 0; step < 200 / kStepShare; ++step) {
          CallOptions options{
              .reduction = reduction, .weight = any_weight(weighted), .chunk_bytes = 1U << (12 + random() % 4)};
          options.codec = random() % 8 == 0 ? CodecSpec::parse("exact") : codecs[random() % codecs.size()];
          options.algorithm = kAlgorithms[random() % kAlgorithms.size()];
          if (random() % 3 == 0) {
            options.second_hop = codecs[random() % codecs.size()];
          }
          reduce(communicator, feedback, account, step, options);
        }
        flush(communicator, feedback, account, reduction, weighted);
      });
      EXPECT_LE(account.error(), 1e-6);
    }
  }
}

// Makes calls by any codec and algorithm, hierarchical among them, and one that brings in all residuals.
struct Switches {
  std::vector<std::uint32_t> nodes;
  Reduction reduction = Reduction::mean;
  bool weighted = false;
  ResidualDType residuals = ResidualDType::f32;
};

Account sum_over_switches(const Switches& given, unsigned seed) {
  constexpr std::uint64_t kCount = 5 * 4096 + 100;
  const std::vector<CodecSpec> codecs = lossy_and_behind_topk();
  constexpr std::array kAlgorithms{Algorithm::hierarchical, Algorithm::two_shot, Algorithm::hierarchical,
                                   Algorithm::one_shot, Algorithm::dense};
  Account account(kCount);
  std::atomic<int> tiered{0};
  const auto world = static_cast<int>(given.nodes.size());
  run_ranks(make_inproc_world(world, given.nodes), [&](const std::shared_ptr<Transport>& transport) {
    std::mt19937 random(seed);  // the same choices on every rank
    Communicator communicator(transport);
    FeedbackBuffer feedback(kCount, given.residuals);
    const auto any = [&] { return random() % 8 == 0 ? CodecSpec::parse("exact") : codecs[random() % codecs.size()]; };
    for (int step = 0; step < 80 / kStepShare; ++step) {
      CallOptions options{
          .reduction = given.reduction, .weight = any_weight(given.weighted), .chunk_bytes = 1U << (12 + random() % 4)};
      options.codec = any();
      options.intra_codec = any();
      options.algorithm = kAlgorithms[random() % kAlgorithms.size()];
      tiered += options.algorithm == Algorithm::hierarchical ? 1 : 0;
      if (random() % 3 == 0) {
        options.second_hop = any();
      }
      reduce(communicator, feedback, account, step, options);
    }
    flush(communicator, feedback, account, given.reduction, given.weighted);
  });
  EXPECT_GT(tiered, 0);
  return account;
}

// Sums over nodes leave residuals of their own, which the next call finds wherever it goes. Mutations tried: these are
// not kept; two_shot does not fold them; dense folds them times the sum of weights.
TEST(Feedback, ConservesTheSumOverSwitchesOfTiers) {
  const std::vector<std::vector<std::uint32_t>> placements{{0, 0, 1, 1}, {0, 1, 1, 0}, {0, 0, 0, 1, 1, 1}};
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    for (const bool weighted : {false, true}) {
      const unsigned seed = 171 + (weighted ? 1 : 0);
      for (const auto& nodes : placements) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " nodes of " + std::to_string(nodes[1]));
        EXPECT_LE(sum_over_switches({nodes, reduction, weighted}, seed).error(), 1e-6);
      }
    }
  }
}

// Each rounding to bf16 adds an error of at most 2^-8 of a residual, which may be several times a gradient, and to int8
// one of 1/64 of the largest residual of 64. The mean of all errors is 0. A chance of 1 in 10^8 is left to the bound of
// 6 standard errors.
TEST(Feedback, NarrowResidualsConserveTheMeanOverSwitchesOfTiers) {
  const unsigned seed = std::random_device{}();
  using Form = std::pair<ResidualDType, Reduction>;
  for (const auto& [dtype, reduction] :
       {Form{ResidualDType::bf16, Reduction::mean}, Form{ResidualDType::bf16, Reduction::sum},
        Form{ResidualDType::int8, Reduction::mean}, Form{ResidualDType::int8, Reduction::sum}}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Account account = sum_over_switches({{0, 0, 1, 1}, reduction, true, dtype}, seed);
    EXPECT_LE(account.error(), dtype == ResidualDType::bf16 ? 0.03 : 0.2);
    EXPECT_GT(account.error(), 1e-6) << "nothing was rounded";
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < account.got.size(); ++i) {
      sum += account.got[i] - account.wanted[i];
      squares += (account.got[i] - account.wanted[i]) * (account.got[i] - account.wanted[i]);
    }
    EXPECT_LE(std::abs(sum), 6 * std::sqrt(squares));
  }
}

// bf16 takes half of the memory, int8 a quarter and the scales.
TEST(Feedback, ABufferSaysWhatItsResidualsAre) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    FeedbackBuffer wide(5000), narrow(5000, ResidualDType::bf16), least(5000, ResidualDType::int8);
    for (FeedbackBuffer* feedback : {&wide, &narrow, &least}) {
      std::vector<float> values(5000, 0.3F);
      communicator.all_reduce(view(values.data(), values.size()),
                              {.codec = CodecSpec::parse("int4"), .feedback = feedback});
    }
    EXPECT_GT(narrow.bytes(), 0U);
    EXPECT_EQ(2 * narrow.bytes(), wide.bytes());
    EXPECT_LE(least.bytes(), wide.bytes() / 4 * 65 / 64 + 2 * 65);
    narrow.clear();
    EXPECT_EQ(narrow.bytes(), 0U);
  });
}

// With 16-bit values, residuals arrive in 32 bits: only the result is rounded.
TEST(Feedback, SixteenBitTensorsReceiveResidualsInFull) {
  constexpr std::uint64_t kCount = 5000;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    FeedbackBuffer feedback(kCount);
    Values ones(DType::bf16, std::vector<double>(kCount, 1.0));
    const CodecSpec int8 = CodecSpec::parse("int8");
    std::vector<double> mixed(kCount, 0.001);
    mixed[0] = 1;
    Values first(DType::bf16, mixed);
    communicator.all_reduce(first.view(), {.codec = int8, .algorithm = Algorithm::two_shot, .feedback = &feedback});
    communicator.all_reduce(
        ones.view(), {.codec = CodecSpec::parse("exact"), .algorithm = Algorithm::two_shot, .feedback = &feedback});
    EXPECT_EQ(feedback.bytes(), 0U);
    for (const double x : ones.doubles()) {
      EXPECT_NEAR(x, 2.0, 0.02);
    }
  });
}

// The workers minimise sum_i <a_i, x>^2 + |x|^2 / 4, where each worker's largest coordinate is one that the mean does
// not need. Without a residual, or with e = g - Q(p), x diverges.
TEST(Feedback, ThreeWorkersWithTopOneConverge) {
  const std::array<std::array<double, 3>, 3> a{{{-3, 2, 2}, {2, -3, 2}, {2, 2, -3}}};
  for (const char* spec : {"topk(1/4096)+exact", "topk(1/4096)+bf16"}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      FeedbackBuffer feedback(3);
      const auto& mine = a[static_cast<std::size_t>(transport->rank())];
      std::array<float, 3> x{1, 1, 1};
      for (int step = 0; step < 2000; ++step) {
        const double product = mine[0] * x[0] + mine[1] * x[1] + mine[2] * x[2];
        std::array<float, 3> g{};
        for (std::size_t i = 0; i < 3; ++i) {
          g[i] = static_cast<float>(2 * product * mine[i] + static_cast<double>(x[i]) / 2);
        }
        communicator.all_reduce(view(g.data(), 3), {.codec = CodecSpec::parse(spec),
                                                    .algorithm = Algorithm::two_shot,
                                                    .reduction = Reduction::mean,
                                                    .feedback = &feedback});
        for (std::size_t i = 0; i < 3; ++i) {
          x[i] -= 0.02F * g[i];
        }
      }
      EXPECT_LE(std::sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]), 1e-15) << spec;
    });
  }
}

TEST(Feedback, ReduceScatterAndAllGatherConserveToo) {
  constexpr std::uint64_t kCount = 9000;
  const std::vector<std::uint64_t> counts{4000, 0, 5000};
  for (const CodecSpec codec : lossy_and_behind_topk()) {
    SCOPED_TRACE(codec.to_string());
    Account scattered(kCount);
    Account gathered(kCount);
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      FeedbackBuffer feedback(kCount);
      FeedbackBuffer gather_feedback(kCount);
      const auto rank = static_cast<std::size_t>(transport->rank());
      const std::uint64_t first = rank == 2 ? 4000 : 0;
      std::vector<float> segment(counts[rank]);
      std::vector<float> all(kCount);
      for (int step = 0; step <= 40; ++step) {
        const bool last = step == 40;
        const CodecSpec now = last ? CodecSpec::parse("exact") : codec;
        const std::vector<float> values = last ? std::vector<float>(kCount) : gradient(kCount, transport->rank(), step);
        communicator.reduce_scatter(view(values.data(), kCount), view(segment.data(), segment.size()), counts,
                                    {.codec = now, .feedback = &feedback});
        for (std::size_t i = 0; i < segment.size(); ++i) {
          scattered.got[first + i] += segment[i];
        }
        for (int r = 0; r < 3 && !last; ++r) {
          const std::vector<float> theirs = gradient(kCount, r, step);
          for (std::size_t i = 0; i < segment.size(); ++i) {
            scattered.wanted[first + i] += theirs[first + i];
          }
        }
        communicator.all_gather(view(values.data() + first, counts[rank]), view(all.data(), kCount), counts,
                                {.codec = now, .feedback = &gather_feedback});
        for (std::size_t i = 0; i < segment.size(); ++i) {
          gathered.wanted[first + i] += values[first + i];
          gathered.got[first + i] += all[first + i];
        }
      }
    });
    EXPECT_LE(scattered.error(), 1e-6);
    EXPECT_LE(gathered.error(), 1e-6);
  }
}

TEST(Feedback, ABufferKeepsToItsWorldSize) {
  constexpr std::uint64_t kCount = 5000;
  FeedbackBuffer feedback(kCount);
  Account account(kCount);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    FeedbackBuffer own(kCount);
    Communicator communicator(transport);
    reduce(communicator, transport->rank() == 0 ? feedback : own, account, 0, {.codec = CodecSpec::parse("int8")});
  });
  std::vector<float> zeros(kCount);
  Communicator alone(make_inproc_world(1)[0]);
  EXPECT_GT(feedback.bytes(), 0U);
  try {
    alone.all_reduce(view(zeros.data(), kCount), {.codec = CodecSpec::parse("int8"), .feedback = &feedback});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("residuals of a world of 2 ranks, this one has 1"), std::string::npos)
        << error.what();
  }
}

// Ranks agree on the wire dtype although only the owner holds a residual.
TEST(Feedback, RanksAgreeOnTheDtypeThatCarriesResiduals) {
  run_ranks(4, [](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    FeedbackBuffer feedback(100);
    Values values(DType::f16, gaussian(100, transport->rank(), 1.0));
    communicator.all_reduce(values.view(), {.codec = CodecSpec::parse("exact"),
                                            .algorithm = Algorithm::two_shot,
                                            .second_hop = CodecSpec::parse("int8"),
                                            .feedback = &feedback});
    communicator.all_reduce(
        values.view(), {.codec = CodecSpec::parse("exact"), .algorithm = Algorithm::two_shot, .feedback = &feedback});
    EXPECT_EQ(feedback.bytes(), 0U);
  });
}

TEST(Feedback, ABufferOfAnotherSizeIsAnError) {
  Communicator alone(make_inproc_world(1)[0]);
  FeedbackBuffer feedback(10);
  std::vector<float> values(11);
  try {
    alone.all_reduce(view(values.data(), values.size()), {.feedback = &feedback});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("feedback buffer has 10 elements but must have 11"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gradwire::test
