/* SPDX-License-Identifier: MIT
 *
 * monobolt: the sub-commands, in the order in which --help shows them.
 * A new one is a file here, a declaration and a line in the list.
 */
#include "cli.h"

extern const cli_command command_demo, command_fetch, command_inspect, command_bench;

static const cli_command *const commands[] = {
    &command_demo,
    &command_fetch,
    &command_inspect,
    &command_bench,
    NULL,
};

int main(int argc, char **argv) {
    return cli_main(commands, argc, argv);
}
