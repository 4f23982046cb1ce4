// Tests which parts of a command line are left out of files, pages and messages. Mutations tried: names are compared in
// one case only; the value in the next word stays; a password ends at its first slash.
#include "base/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradwire {
namespace {

using Words = std::vector<std::string>;

struct Case {
  Words given;
  Words expected;
};

TEST(CommandLine, SecretsAreLeftOut) {
  const std::vector<Case> cases{
      // Behind "=", in one word.
      {{"--token=X"}, {"--token=***"}},
      {{"--hf_Token=X"}, {"--hf_Token=***"}},
      {{"TOKEN=X"}, {"TOKEN=***"}},
      {{"AWS_SECRET_ACCESS_KEY=a=b"}, {"AWS_SECRET_ACCESS_KEY=***"}},
      {{"--db.password=X"}, {"--db.password=***"}},
      {{"-Dapi-key=X"}, {"-Dapi-key=***"}},
      {{"--export=ALL,API_KEY=X,B=2"}, {"--export=ALL,API_KEY=***"}},
      {{"--url=http://h/?a=1&token=X&b=2"}, {"--url=http://h/?a=1&token=***"}},
      {{R"({"lr": 1, "apiKey": "X"})"}, {R"({"lr": 1, "apiKey":***)"}},
      {{"Authorization: Bearer X"}, {"Authorization:***"}},
      {{"--passwd="}, {"--passwd="}},
      // In the next word.
      {{"--token", "X", "--lr", "1"}, {"--token", "***", "--lr", "1"}},
      {{"-wandb_key", "X"}, {"-wandb_key", "***"}},
      {{"--CREDENTIALS", "X"}, {"--CREDENTIALS", "***"}},
      {{"--passphrase", "a b"}, {"--passphrase", "***"}},
      {{"mpiexec", "-genv", "API_TOKEN", "X", "-n", "2"}, {"mpiexec", "-genv", "API_TOKEN", "***", "-n", "2"}},
      {{"mpirun", "-x", "API_TOKEN=X"}, {"mpirun", "-x", "API_TOKEN=***"}},
      {{"--use-key", "--lr", "1"}, {"--use-key", "--lr", "1"}},
      {{"--key"}, {"--key"}},
      // Lines in a word.
      {{"sh", "-c", "python a.py --token X --lr 1"}, {"sh", "-c", "python a.py --token ***"}},
      {{"sh", "-c", "PASSWORD='a b' python a.py"}, {"sh", "-c", "PASSWORD=***"}},
      {{"sh", "-c", "curl https://u:p@h/a https://u:q@h/b"}, {"sh", "-c", "curl https://***@h/a https://***@h/b"}},
      // URLs.
      {{"s3://user:pass@host/data"}, {"s3://***@host/data"}},
      {{"--store=redis://:pass@host:6379/0"}, {"--store=redis://***@host:6379/0"}},
      {{"s3://user:pa/s@s@host/data"}, {"s3://***@host/data"}},
      {{"http://host:8080/a@b"}, {"http://host:8080/a@b"}},
      {{"ssh://git@host/data"}, {"ssh://git@host/data"}},
      {{"http://[::1]:80/"}, {"http://[::1]:80/"}},
      // Other words stay.
      {{"python", "train.py", "--lr=1e-3", "data:train"}, {"python", "train.py", "--lr=1e-3", "data:train"}},
      {{"--tokenizer", "gpt2", "--max-tokens", "4096"}, {"--tokenizer", "gpt2", "--max-tokens", "4096"}},
      {{"--tokens-per-step=8k"}, {"--tokens-per-step=8k"}},
      {{"--tokens", "X"}, {"--tokens", "***"}},
      {{"-pX", "train.py", "", "="}, {"-pX", "train.py", "", "="}},
  };
  for (const Case& each : cases) {
    const Words made = without_secrets(each.given);
    EXPECT_EQ(made, each.expected);
    EXPECT_EQ(without_secrets(made), made) << "it changes again";
  }
}

TEST(CommandLine, ValuesOfVariables) {
  EXPECT_EQ(without_secrets("GRADWIRE_KEY", "file:/k"), "***");
  EXPECT_EQ(without_secrets("GRADWIRE_KEY", ""), "");
  EXPECT_EQ(without_secrets("GRADWIRE_METRICS", "file:/m"), "file:/m");
  EXPECT_EQ(without_secrets("DATA", "s3://a:b@h"), "s3://***@h");
}

TEST(CommandLine, OfThisProcess) {
  EXPECT_THAT(own_command_line().at(0), ::testing::HasSubstr("base_test"));
  EXPECT_EQ(own_command_line(1).size(), 1U);
}

}  // namespace
}  // namespace gradwire
