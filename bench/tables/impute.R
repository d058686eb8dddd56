# SPDX-License-Identifier: MIT
# usage: Rscript impute.R IN.csv OUT-PREFIX TYPES: mice with its default methods, five imputations.
suppressPackageStartupMessages(library(mice))
arguments <- commandArgs(trailingOnly = TRUE)
types <- strsplit(arguments[3], "")[[1]]
table <- read.csv(arguments[1], na.strings = "", colClasses = ifelse(types == "n", "numeric", "factor"))
began <- proc.time()[["elapsed"]]
made <- mice(table, m = 5, maxit = 5, printFlag = FALSE, seed = 1)
cat(proc.time()[["elapsed"]] - began, "\n")
for (i in 1:5) write.csv(complete(made, i), paste0(arguments[2], i, ".csv"), row.names = FALSE, na = "")
