"""How each paper's protocol is read where it is silent, contradicts itself, or differs from the released code.

The pages of results print these sentences, so that no choice of ours is silent. The fields are in the configs of
`dubito.papers`; a change there belongs here too.
"""

from __future__ import annotations

READINGS: dict[str, tuple[str, ...]] = {
    "collier2020": (
        "Not stated, and chosen here as in co-teaching's training: batches of 128, no weight decay.",
        "Not stated: padding of the last block, kind of dropout, eps and place of group norm. CIFAR-10 and "
        "SVHN: padded, dropout by element, eps 1e-3, the norm after the activation, which was best on noisy "
        "validation labels of CIFAR-10 (the table of silent points below). MNIST: unpadded, by channel, eps "
        "1e-5, the norm before the activation, as in the co-teaching network; it was not tried otherwise.",
        "Not stated: Glorot's start, scales as softplus + .001, 1,000 samples in training as in prediction.",
        "Validation labels are taken to be as noisy as the training labels.",
        "Temperatures are the paper's choices, not searched again. It searched MentorNet's lambda_2 and "
        "burn-in and does not print the outcome: here they are the middle of its grid.",
        "Co-teaching is told the realised share of wrong labels; its first network is measured. Early stopping "
        "may come while its share of dropped examples still grows. No method drops units in prediction.",
        "Bootstrapping with .8 is the hard form. MentorNet is its closed form; the running percentile starts at "
        "0.",
        "Not stated: the numbers of training samples in figures 1 and 6 (here 1, 10, 100, 1,000). On streams the "
        "images of a batch share their draws from 1,000 samples on.",
        "Segmentation (table 2, figures 2 to 4): the paper starts from weights of its own second phase, which are "
        "private; here they are those of ImageNet. Not stated: momentum .9, batches of 16, DeepLab's scales, crops "
        "and flips, a constant rate, no weight decay, the enlarged training part of VOC; it is the logarithms of "
        "probabilities that are enlarged to the image; the temperatures are .01 and those of the images up to 10. "
        "Nothing is trained again on training and validation images together for the test figures, whose output "
        "stride is 16 where the paper has 8. Figure 3 shows images of the set in place of a photograph from the "
        "web, figure 4 standard deviations in place of variances.",
    ),
    "englesson2023": (
        "MNIST: 45,000 images for training and 5,000 for validation out of the first 50,000, as in the "
        "released code; the paper says a tenth for validation. Exactly the stated share of labels is "
        "drawn anew.",
        "From the released code: the layers of LeNet-5 (5x5 convolutions of 6, 16 and 120 filters, one dense layer "
        "of 84), target smoothing t = .01 (.1 on Clothing1M) over the classes and the dummy, Glorot's start and "
        "Adam's eps 1e-7 on MNIST, weight decay on all parameters (on Clothing1M on kernels alone; the code decays "
        "the bias of the last layer too), CIFAR-10's statistics, two pixels of padding. Clothing1M: a tenth of the "
        "rate after epoch 5, 18,976 images of each class in an epoch, windows of 224 pixels out of 256, flips, its "
        "own statistics.",
        "CIFAR-10, asymmetric: trucks are called automobiles too, as in the code; the printed list leaves "
        "them out.",
        "NAN: noisy targets do not sum to one. The authors of NAN differentiate the loss as it is, and so does "
        "table 1 here. The code of this paper is TensorFlow's, whose cross-entropy has the gradient p - w whatever "
        "the sum: weaker noise, the same as noise with its mean taken out. Sections whose names end in -nan have "
        "NAN so.",
        "Not stated: 1,000 samples for the heteroscedastic methods; forward correction takes its matrix "
        "from plain training, the best example below the 97th percentile of each class (the top on "
        "CIFAR-100).",
        "Not stated: on MNIST pixels divided by 255; scales of the heteroscedastic methods as softplus + .001; "
        "He's start of the WideResNet; isotropic and diagonal covariances have the root lam plus a square, with "
        "the temperature and lam that the paper chose for the full form; the bi-tempered normaliser is exact, not "
        "five iterations; mean and covariance have a linear layer each, also on MNIST; images are padded after "
        "they are normalised.",
        'Figure 3: "gradient descent" is read as Adam\'s, since 2,000 plain steps of 1e-4 hardly leave the start '
        "(such runs are among the results). Not stated: 500 points with a spread of .1, a fifth of the labels "
        "flipped, t = .01, temperature and lam 1.",
        "Figure 5: its values are in a picture only; here temperature .05 to 2 and lam .25 to 2, which is the "
        "search grid and a step beyond at each end.",
        "Figure 4: training curves are of the first 2,000 examples of each part. Clothing1M: the printed weight "
        "decay 1e-3, not the code's 5e-4; test images are cropped in the middle; the weights of ImageNet are "
        "torchvision's default.",
        "On streams the images of a batch share their 1,000 draws.",
        "Hyper-parameters are the paper's choices of tables 4 to 6; a search of our own is shown where "
        "there is one.",
    ),
    "lukasik2020": (
        "Exactly a fifth of the training labels is moved to another class; section 4.1 could also mean a "
        "re-draw over all.",
        "Not stated: He's start, weight decay on all parameters, CIFAR-10's statistics, four pixels of "
        "padding after the images are normalised; all training images are used, nothing is held out. The blocks of "
        "ResNet-32 and 56 are in the original order (convolution, norm, ReLU), with shortcuts without parameters.",
        "Forward correction acts on probabilities, not on logits as printed in eq. 5.",
        "An estimated matrix has as row i the output of plain training for the example at the 99.9th "
        "percentile of class i.",
        "An estimated matrix that can hardly be inverted (a condition number above 100) is mixed with the "
        "identity for backward correction.",
        "Not stated: students of soft targets are smoothed or corrected as labels would be; calibration bins "
        "are closed on the right; the values of alpha in figures 2 and 6. ImageNet: labels change with "
        "probability .2, not exactly a fifth; LARS with trust .001 and no decay on vectors, a rate of 7 without "
        "warm-up or Nesterov's momentum that drops at 1/3, 2/3 and 8/9 of the steps; momentum .9 and weight decay "
        "1e-4 as on CIFAR, windows of 224 pixels out of 256, flips.",
        "Figure 5, not stated: 2,000 points, 5,000 full steps of rate 1, smoothing by .1, .3, .5 and .7, L2 of "
        ".001, .01, .1 and 1, which acts on the bias as well.",
        "Table 5 prints for plain distillation on CIFAR-10 the numbers of undistilled training; they are no "
        "target.",
        "Distillation: teacher and student are both divided by the temperature, without a factor T^2; the "
        "teacher sees the student's image.",
    ),
    "tanno2019": (
        "Flippers: from a skill of .3 on, groups are drawn anew until their mean matrix is dominant, as "
        "in figure 4; at .3 and .35 two draws in three would be beyond any method. Skills within a group "
        "have a standard deviation of .01.",
        "The skills of a sweep are in the pictures only: here .1 to .5 by .05, then to .9 by .1. Figure 5: EM in "
        "5, 20 and 100 rounds, of which the paper names the last, and one label per image, which is not stated. A "
        "round ends between epochs: of 100 rounds of 1,000 steps there are 93, each an epoch of 1,080; of 20 in a "
        "shortened run, 19.",
        "Hammer-spammers are right with probability p, else wrong uniformly; the text could mean any label.",
        "Not stated: ten rounds of EM on MNIST, Glorot's start, pixels divided by 255, a pool after each "
        "of the first two convolutions.",
        "The best epoch is that of the classifier's accuracy against noisy labels of the held-out images: all "
        "that were given for methods with annotators, the vote for the others. Ties of a vote are broken at "
        "random. EM's matrices are of the last epoch.",
        "The weight .01 multiplies the mean trace, as in the listing; equation 4 has the sum. Losses are "
        "computed from logarithms where the listing clips. The confusion error is divided by the number of "
        "entries, which fits table 1 better than the printed formula.",
        "The doctor net learns its average in the last fifth of the epochs, from the best epoch before; with the "
        "rate of CIFAR-10's schedule, a thousandth by then, the average can hardly move. Rounds of EM share one "
        "schedule: on CIFAR-10 the second round has a hundredth of the rate and less.",
        "MBEM has a class prior, and rows of classes that nobody saw are uniform. With one label per image GEM "
        "learns the labels as they are; table 1b prints more for it than for plain training.",
        "The plain network of the paper has an L2 penalty of a weight that is not given; here it has none.",
        "Figure 7 is of ultrasound images that are not public: LabelMe stands in, with a perceptron on 512 "
        "features of a pretrained network (two hidden layers of 2,000), each standardised by the training items; a "
        "tenth of the items is held out and judged by the vote.",
        "CIFAR-10: a ResNet-50 with a 3x3 stem and He's start; Adam's eps is 1e-8.",
        "CIFAR-10's four matrices are in a picture only: ours are made to its description, right 45 % of "
        "the time.",
    ),
}
