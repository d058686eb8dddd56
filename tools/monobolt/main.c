/* SPDX-License-Identifier: MIT
 *
 * monobolt: the sub-commands, in the order in which --help shows them.
 * A new one is a file here, a declaration and a line in the list.
 */
#include "cli.h"

extern const cli_command command_demo, command_fetch, command_train, command_eval, command_infer,
    command_sample, command_spec, command_plot, command_inspect, command_bench, command_rbm_train,
    command_rbm_eval, command_rbm_infer, command_reproduce;

static const cli_command *const commands[] = {
    &command_demo,
    &command_fetch,
    &command_spec,
    &command_train,
    &command_eval,
    &command_infer,
    &command_sample,
    &command_plot,
    &command_inspect,
    &command_bench,
    &command_reproduce,
    &command_rbm_train,
    &command_rbm_eval,
    &command_rbm_infer,
    NULL,
};

static const cli_note files[] = {
    {"models/*.ini", "specs: models and their training, as text"},
    {"models/*.safetensors", "trained networks, each with its spec inside; any reader of "
                             "safetensors reads them"},
    {"data/NAME", "datasets, where fetch puts them and the others look for them"},
    {"out/NAME/network.safetensors", "what train made of the spec NAME.ini"},
    {"out/NAME/checkpoint.safetensors", "from where train --resume goes on"},
    {"out/NAME/metrics.csv", "a line per epoch"},
    {"out/NAME/metrics.svg", "the same as a picture"},
    {"out/rbm-NAME/rbm.safetensors", "what rbm train made of data/NAME, with the same files beside it"},
    {"out/reproduce/index.html", "the paper's comparisons, each with its CSV and SVG beside it"},
    {"out/demo/index.html", "what demo found, as a page that needs no network"},
    {0}};

static const cli_note examples[] = {
    {"monobolt demo", "complete and name test digits with 60 % of their pixels hidden"},
    {"monobolt fetch mnist", "bring MNIST into data/mnist"},
    {"monobolt train models/digits.ini", "train a small model on drawn digits, in about a minute"},
    {"monobolt train models/mnist.ini --resume", "go on after a Ctrl-C"},
    {"monobolt eval models/mnist.safetensors --observe 0.2,0.4,0.6,0.8 --json",
     "measure at four shares of shown pixels, five masks each"},
    {"monobolt infer models/mnist.safetensors data/mnist --limit 20 --mask top",
     "complete the upper halves of twenty digits, in out/infer"},
    {"monobolt sample models/mnist.safetensors --label all --count 10",
     "make up ten pictures of each digit, in out/sample"},
    {"monobolt plot out/mnist/metrics.csv out/mnist-paper/metrics.csv --reference 0.9295:paper",
     "compare two runs, and both with a figure of the paper, in out/plot.svg"},
    {"monobolt inspect models/mnist-paper.ini --json", "the tiers, the spectrum and the step"},
    {"monobolt reproduce residual-monotone", "the paper's table of update residuals, in small"},
    {"monobolt rbm train mnist", "train the restricted Boltzmann machine that the paper compares with"},
    {"monobolt rbm eval out/rbm-mnist/rbm.safetensors --both --observe 0.2,0.4,0.6,0.8",
     "measure it by mean-field and by Gibbs sampling"},
    {0}};

int main(int argc, char **argv) {
    const cli_program program = {.commands = commands, .files = files, .examples = examples};
    return cli_main(&program, argc, argv);
}
